// The demo's pipeline (src/suiro/demo/pipeline.py) on Kafka Streams: Avro in Confluent's wire format, JSON by Jackson.
// Usage: FlightsPeer BOOTSTRAP APPLICATION_ID REGISTRY READY_FILE STATE_FOLDER THREADS

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;

public final class FlightsPeer {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Serde<String> STRING = Serdes.String();
    private static final DateTimeFormatter SECONDS =
            DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss'Z'").withZone(ZoneOffset.UTC);
    private static final DateTimeFormatter MINUTES =
            DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm'Z'").withZone(ZoneOffset.UTC);

    /** Avro by a registry: read by the schema that the bytes name, written by the latest one of the subject. */
    private static final class Avro implements Serde<GenericRecord> {
        private final HttpClient http = HttpClient.newHttpClient();
        private final Map<Integer, GenericDatumReader<GenericRecord>> readers = new ConcurrentHashMap<>();
        private final Map<String, Map.Entry<Integer, GenericDatumWriter<GenericRecord>>> writers =
                new ConcurrentHashMap<>();
        private final String registry;
        private final String kind;

        Avro(String registry, boolean isKey) {
            this.registry = registry;
            this.kind = isKey ? "-key" : "-value";
        }

        private JsonNode ask(String path) {
            try {
                var request = HttpRequest.newBuilder(URI.create(registry + path)).build();
                return MAPPER.readTree(http.send(request, HttpResponse.BodyHandlers.ofString()).body());
            } catch (IOException | InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public org.apache.kafka.common.serialization.Serializer<GenericRecord> serializer() {
            return (topic, record) -> {
                if (record == null) {
                    return null;
                }
                var writer = writers.computeIfAbsent(topic, name -> {
                    var latest = ask("/subjects/" + name + kind + "/versions/latest");
                    var schema = new Schema.Parser().parse(latest.get("schema").asText());
                    return Map.entry(latest.get("id").asInt(), new GenericDatumWriter<>(schema));
                });
                var bytes = new ByteArrayOutputStream(256);
                bytes.writeBytes(ByteBuffer.allocate(5).put((byte) 0).putInt(writer.getKey()).array());
                try {
                    BinaryEncoder encoder = EncoderFactory.get().directBinaryEncoder(bytes, null);
                    writer.getValue().write(record, encoder);
                    encoder.flush();
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
                return bytes.toByteArray();
            };
        }

        @Override
        public org.apache.kafka.common.serialization.Deserializer<GenericRecord> deserializer() {
            return (topic, bytes) -> {
                if (bytes == null) {
                    return null;
                }
                var reader = readers.computeIfAbsent(ByteBuffer.wrap(bytes).getInt(1), id -> new GenericDatumReader<>(
                        new Schema.Parser().parse(ask("/schemas/ids/" + id).get("schema").asText())));
                try {
                    return reader.read(null, DecoderFactory.get().binaryDecoder(bytes, 5, bytes.length - 5, null));
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            };
        }
    }

    private static String reasonToReject(GenericRecord flight) {
        if (flight == null) {
            return "the row was deleted";
        }
        return flight.get("dep_time") != null && flight.get("arr_delay") == null
                ? "departed, but has no arrival delay" : null;
    }

    private static final class Reasons extends ContextualFixedKeyProcessor<GenericRecord, GenericRecord, GenericRecord> {
        @Override
        public void process(FixedKeyRecord<GenericRecord, GenericRecord> record) {
            var origin = context().recordMetadata().orElseThrow();
            var told = Map.of(
                    "reason", reasonToReject(record.value()),
                    "topic", origin.topic(),
                    "partition", Integer.toString(origin.partition()),
                    "offset", Long.toString(origin.offset()));
            for (var name : new String[] {"reason", "topic", "partition", "offset"}) {
                record.headers().add(new RecordHeader(name, told.get(name).getBytes(StandardCharsets.UTF_8)));
            }
            context().forward(record);
        }
    }

    private static long micros(GenericRecord record) {
        return (Long) record.get("time_hour");
    }

    private static String flightId(GenericRecord flight) {
        var at = Instant.ofEpochMilli(micros(flight) / 1000 + (Integer) flight.get("minute") * 60_000L);
        return flight.get("carrier") + "-" + flight.get("flight") + "-" + flight.get("origin") + "-" + MINUTES.format(at);
    }

    private static ObjectNode asJson(GenericRecord flight) {
        var made = MAPPER.createObjectNode();
        for (var field : flight.getSchema().getFields()) {
            var value = flight.get(field.pos());
            if (value instanceof Long moment) {
                made.put(field.name(), SECONDS.format(Instant.ofEpochMilli(moment / 1000)));
            } else {
                put(made, field.name(), value);
            }
        }
        return made;
    }

    private static JsonNode chosen(GenericRecord row, String... names) {
        if (row == null) {
            return MAPPER.nullNode();
        }
        var made = MAPPER.createObjectNode();
        for (var name : names) {
            put(made, name, row.get(name));
        }
        return made;
    }

    private static void put(ObjectNode made, String name, Object value) {
        if (value == null) {
            made.putNull(name);
        } else if (value instanceof Integer number) {
            made.put(name, number);
        } else if (value instanceof Double number) {
            made.put(name, number);
        } else {
            made.put(name, value.toString());
        }
    }

    private static GenericRecord key(Schema schema, String name, Object value) {
        if (value == null) {
            return null;
        }
        var made = new GenericData.Record(schema);
        made.put(name, value);
        return made;
    }

    private static Schema latest(Avro keys, String topic) {
        return new Schema.Parser().parse(keys.ask("/subjects/" + topic + "-key/versions/latest").get("schema").asText());
    }

    private static long[] add(long[] delays, long[] totals) {
        var made = totals.clone();
        for (int place = 0; place < made.length; place++) {
            made[place] += delays[place];
        }
        return made;
    }

    private static long[] delaysOf(ObjectNode flight) {
        JsonNode dep = flight.get("dep_delay"), arr = flight.get("arr_delay");
        return new long[] {
            1, flight.get("dep_time").isNull() ? 1 : 0, dep.asLong(0), dep.isNull() ? 0 : 1, arr.asLong(0),
            arr.isNull() ? 0 : 1
        };
    }

    private static void mean(ObjectNode made, String name, long total, long count) {
        if (count == 0) {
            made.putNull(name);
        } else {
            made.put(name, (double) total / count);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        if (arguments.length != 6) {
            System.err.println("six arguments, see the first lines of FlightsPeer.java");
            System.exit(2);
        }
        var keys = new Avro(arguments[2], true);
        var values = new Avro(arguments[2], false);
        var builder = new StreamsBuilder();
        var tables = Consumed.with(keys, values);
        var airlines = builder.globalTable("nyc.public.airlines", tables);
        var airports = builder.globalTable("nyc.public.airports", tables);
        var planes = builder.globalTable("nyc.public.planes", tables);
        var weather = builder.globalTable("weather", Consumed.with(STRING, NexmarkPeer.json(ObjectNode.class)));
        var airlineKey = latest(keys, "nyc.public.airlines");
        var airportKey = latest(keys, "nyc.public.airports");
        var planeKey = latest(keys, "nyc.public.planes");

        var flights = builder.stream("nyc.public.flights", Consumed.with(keys, values)
                .withTimestampExtractor((record, before) -> {
                    var key = (GenericRecord) record.key();
                    return micros(key) / 1000 + (Integer) key.get("minute") * 60_000L;
                }));
        var ways = flights.split(Named.as("way-"))
                .branch((key, flight) -> reasonToReject(flight) == null, Branched.as("valid"))
                .defaultBranch(Branched.as("rejected"));
        ways.get("way-valid").to("flights.validated", Produced.with(keys, values));
        ways.get("way-rejected").processValues(Reasons::new).to("flights.rejected", Produced.with(keys, values));

        var enriched = ways.get("way-valid")
                .map((key, flight) -> KeyValue.pair(flightId(flight), asJson(flight)))
                .leftJoin(airlines, (key, flight) -> key(airlineKey, "carrier", text(flight, "carrier")),
                        (flight, row) -> flight.put("airline", row == null ? null : row.get("name").toString()))
                .leftJoin(airports, (key, flight) -> key(airportKey, "faa", text(flight, "dest")),
                        (flight, row) -> flight.set("destination", chosen(row, "name", "lat", "lon", "tzone")))
                .mapValues(flight -> (ObjectNode) flight)
                .leftJoin(planes, (key, flight) -> key(planeKey, "tailnum", text(flight, "tailnum")),
                        (flight, row) -> flight.set(
                                "plane", chosen(row, "year", "type", "manufacturer", "model", "seats")))
                .mapValues(flight -> (ObjectNode) flight)
                .leftJoin(weather,
                        (key, flight) -> "[\"" + text(flight, "origin") + "\",\"" + text(flight, "time_hour") + "\"]",
                        (flight, row) -> {
                            var made = row == null ? null : MAPPER.createObjectNode();
                            if (row != null) {
                                for (var name : new String[] {"temp", "wind_speed", "precip", "visib"}) {
                                    made.set(name, row.get(name));
                                }
                            }
                            flight.set("weather", made);
                            return flight;
                        });
        enriched.to("flights.enriched", Produced.with(STRING, NexmarkPeer.json(ObjectNode.class)));

        var numbers = NexmarkPeer.json(long[].class);
        var byCarrier = enriched
                .map((key, flight) -> KeyValue.pair(text(flight, "carrier"), delaysOf(flight)))
                .groupByKey(Grouped.with("by-carrier", STRING, numbers));
        byCarrier.aggregate(() -> new long[6], (carrier, delays, totals) -> add(delays, totals),
                        Materialized.with(STRING, numbers))
                .toStream()
                .mapValues((carrier, totals) -> {
                    var made = MAPPER.createObjectNode();
                    made.put("carrier", carrier).put("flights", totals[0]).put("cancelled", totals[1]);
                    mean(made, "mean_dep_delay", totals[2], totals[3]);
                    mean(made, "mean_arr_delay", totals[4], totals[5]);
                    return made;
                })
                .to("carrier.delays", Produced.with(STRING, NexmarkPeer.json(ObjectNode.class)));
        byCarrier.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofHours(1), Duration.ofDays(1)))
                .emitStrategy(EmitStrategy.onWindowClose())
                .aggregate(() -> new long[6], (carrier, delays, totals) -> add(delays, totals),
                        Materialized.with(STRING, numbers))
                .toStream()
                .filter((window, totals) -> totals[3] >= 5 && (double) totals[2] / totals[3] > 60)
                .map((window, totals) -> {
                    var made = MAPPER.createObjectNode();
                    made.put("carrier", window.key())
                            .put("hour", SECONDS.format(Instant.ofEpochMilli(window.window().start())))
                            .put("departed", totals[3])
                            .put("mean_dep_delay", (double) totals[2] / totals[3]);
                    return KeyValue.pair(window.key(), made);
                })
                .to("carrier.alerts", Produced.with(STRING, NexmarkPeer.json(ObjectNode.class)));
        KafkaStreamsPeer.run(builder.build(), arguments[0], arguments[1], arguments[3], arguments[4], arguments[5]);
    }

    private static String text(ObjectNode flight, String name) {
        var found = flight.get(name);
        return found.isNull() ? null : found.asText();
    }

    private FlightsPeer() {}
}
