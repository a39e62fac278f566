// Runs topologies on Kafka Streams' own TopologyTestDriver: a line of JSON for each, its answer as a line of JSON.
// What a line says is in kafka_streams_chains.py, which builds the same for suiro. Started from source, with
// kafka-streams, kafka-streams-test-utils and what they need in the class path.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.time.Instant;
import java.util.*;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;
import org.apache.kafka.streams.test.TestRecord;

@SuppressWarnings({"unchecked", "rawtypes"})
public class KafkaStreamsAnswers {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Serde<Object> KEY = serde(), VALUE = serde();
    static final Duration LONG = Duration.ofMillis(100_000);

    StreamsBuilder builder = new StreamsBuilder();
    final Map<Integer, Object> shared = new HashMap<>(); // streams and tables that several operators are made of

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("records", new KafkaStreamsAnswers().run(JSON.readTree(line)));
            } catch (Throwable error) {
                Throwable cause = error;
                while (cause.getCause() != null) cause = cause.getCause();
                StackTraceElement[] trace = cause.getStackTrace();
                answer.put("error", cause + (trace.length > 0 ? " at " + trace[0] : ""));
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    ArrayNode run(JsonNode asked) throws IOException {
        ArrayNode found = JSON.createArrayNode();
        int end = 0;
        for (JsonNode chain : asked.get("chains")) {
            Object built = build(chain);
            collect(built instanceof KTable ? table(built).toStream() : stream(built), end++, found);
        }
        Path directory = Files.createTempDirectory("kafka-streams-answers");
        Properties properties = new Properties();
        properties.put("application.id", "answers");
        properties.put("bootstrap.servers", "nobody:1");
        properties.put("state.dir", directory.toString());
        properties.put("default.key.serde", AnySerde.class);
        properties.put("default.value.serde", AnySerde.class);
        properties.put("statestore.cache.max.bytes", 0L); // every update, also of a row that was not there
        // Not held back by the wall clock: see the differences in docs/explain/semantics.md.
        properties.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        properties.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
        properties.put("topology.optimization", asked.get("optimization").asText());
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(properties), properties, Instant.EPOCH)) {
            Map<String, TestInputTopic<Object, Object>> topics = new HashMap<>();
            int number = 0;
            for (JsonNode sent : asked.get("records")) {
                RecordHeaders headers = new RecordHeaders();
                headers.add("n", Integer.toString(number++).getBytes(StandardCharsets.UTF_8));
                topics.computeIfAbsent(sent.get(0).asText(), topic -> driver.createInputTopic(topic, KEY.serializer(), VALUE.serializer()))
                    .pipeInput(new TestRecord<>(text(sent.get(1)), text(sent.get(2)), headers, sent.get(3).asLong()));
            }
        } finally {
            try (var files = Files.walk(directory)) {
                files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
            }
        }
        return found;
    }

    /** `end`: which of the ends of the topology the stream is. */
    static void collect(KStream<Object, Object> stream, int end, ArrayNode found) {
        stream.process(() -> new ContextualProcessor<Object, Object, Void, Void>() {
            @Override public void process(Record<Object, Object> record) {
                ArrayNode row = found.addArray().add(end);
                if (record.key() instanceof Windowed) {
                    Windowed<?> key = (Windowed<?>) record.key();
                    row.addArray().add((String) key.key()).add(key.window().start()).add(key.window().end());
                } else {
                    row.add((String) record.key());
                }
                row.addPOJO(record.value());
                row.add(record.timestamp());
                StringJoiner headers = new StringJoiner(",");
                record.headers().headers("n").forEach(header -> headers.add(new String(header.value(), StandardCharsets.UTF_8)));
                row.add(headers.toString());
            }
        });
    }

    // -- operators ------------------------------------------------------------------------------------------------

    Object build(JsonNode node) {
        String what = node.get(0).asText();
        JsonNode a = node.get(1), b = node.get(2), c = node.get(3), d = node.get(4), e = node.get(5);
        switch (what) {
            case "stream": {
                List<String> topics = new ArrayList<>();
                a.forEach(topic -> topics.add(topic.asText()));
                Consumed<Object, Object> consumed = Consumed.with(KEY, VALUE);
                return builder.stream(topics, b.asInt() > 0 ? consumed.withTimestampExtractor((record, time) -> eventTime(b.asInt(), record, time)) : consumed);
            }
            case "shared":
                if (!b.isNull()) shared.put(a.asInt(), build(b));
                return shared.get(a.asInt());
            case "table": return b.isNull() ? builder.table(a.asText(), Consumed.with(KEY, VALUE)) : builder.table(a.asText(), Consumed.with(KEY, VALUE), rows(b, c));
            case "to_table": return b.isNull() ? stream(build(a)).toTable(Materialized.with(KEY, VALUE)) : stream(build(a)).toTable(rows(b, c));
            case "to_stream": return table(build(a)).toStream();
            case "to_stream_by": return table(build(a)).toStream((k, v) -> selected(b.asInt(), v));
            case "without_windows": return table(build(a)).toStream((k, v) -> ((Windowed<?>) k).key());
            case "repartition": return stream(build(a)).repartition(Repartitioned.with(KEY, VALUE));
            case "filter": return stream(build(a)).filter((k, v) -> passes(b.asInt(), k, v));
            case "filter_not": return stream(build(a)).filterNot((k, v) -> passes(b.asInt(), k, v));
            case "map": return stream(build(a)).map((k, v) -> KeyValue.pair(selected(b.asInt(), v), mapped(b.asInt(), v)));
            case "map_values": return stream(build(a)).mapValues(v -> mapped(b.asInt(), v));
            case "flat_map": return stream(build(a)).flatMap((k, v) -> v == null ? List.<KeyValue<Object, Object>>of()
                : List.<KeyValue<Object, Object>>of(KeyValue.pair(selected(b.asInt(), v), v), KeyValue.pair("all", v)));
            case "flat_map_nulls": return stream(build(a)).flatMap((k, v) -> List.<KeyValue<Object, Object>>of(
                KeyValue.pair(null, v), KeyValue.pair(k, null), KeyValue.pair(k, v)));
            case "headers": return stream(build(a)).processValues(() -> new Marking(b.asInt()));
            case "ranges": {
                KStream<Object, Object> above = stream(build(a));
                String store = "p" + b.asInt();
                builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), KEY, VALUE));
                return above.process(() -> new Ranging(store), store);
            }
            case "flat_map_values": return stream(build(a)).flatMapValues(v -> v == null || b.asInt() == 1 && first(v).equals("c") ? List.<Object>of()
                : List.<Object>of(v, text(v) + "'"));
            case "split": {
                String name = "split" + b.asInt() + "-";
                return stream(build(a)).split(Named.as(name)).branch((k, v) -> passes(0, k, v), Branched.as("0"))
                    .branch((k, v) -> passes(1, k, v), Branched.as("1")).defaultBranch(Branched.as("2")).get(name + c.asText());
            }
            case "process": {
                KStream<Object, Object> above = stream(build(a));
                String store = "p" + b.asInt();
                builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), KEY, VALUE));
                int kind = c.asInt();
                return above.process(() -> new Keeping(store, kind), store);
            }
            case "select_key": return stream(build(a)).selectKey((k, v) -> selected(b.asInt(), v));
            case "merge": return stream(build(a)).merge(stream(build(b)));
            case "table_filter": {
                KTable<Object, Object> table = table(build(a));
                return c.isNull() ? table.filter((k, v) -> passes(b.asInt(), k, v)) : table.filter((k, v) -> passes(b.asInt(), k, v), rows(c, d));
            }
            case "table_filter_not": {
                KTable<Object, Object> table = table(build(a));
                return c.isNull() ? table.filterNot((k, v) -> passes(b.asInt(), k, v)) : table.filterNot((k, v) -> passes(b.asInt(), k, v), rows(c, d));
            }
            case "table_map_values": {
                KTable<Object, Object> table = table(build(a));
                return c.isNull() ? table.mapValues(v -> mapped(b.asInt(), v)) : table.mapValues(v -> mapped(b.asInt(), v), rows(c, d));
            }
            case "table_join": {
                KTable<Object, Object> left = table(build(b)), right = table(build(c));
                int joiner = d.asInt();
                ValueJoiner<Object, Object, Object> join = (l, r) -> joined(joiner, l, r);
                if (e.isNull()) {
                    if (a.asText().equals("join")) return left.join(right, join);
                    return a.asText().equals("left_join") ? left.leftJoin(right, join) : left.outerJoin(right, join);
                }
                if (a.asText().equals("join")) return left.join(right, join, rows(e, null));
                return a.asText().equals("left_join") ? left.leftJoin(right, join, rows(e, null)) : left.outerJoin(right, join, rows(e, null));
            }
            case "foreign_key": {
                KTable<Object, Object> left = table(build(b)), right = table(build(c));
                ValueJoiner<Object, Object, Object> join = (l, r) -> joined(0, l, r);
                java.util.function.Function<Object, Object> key = v -> selected(d.asInt(), v);
                Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> rows = e.isNull() ? Materialized.with(KEY, VALUE) : rows(e, null);
                return a.asText().equals("join") ? left.join(right, key, join, rows) : left.leftJoin(right, key, join, rows);
            }
            case "stream_table": {
                KStream<Object, Object> stream = stream(build(b));
                KTable<Object, Object> table = table(build(c));
                Joined<Object, Object, Object> with = Joined.with(KEY, VALUE, VALUE);
                if (!d.isNull()) with = with.withGracePeriod(Duration.ofMillis(d.asLong()));
                ValueJoiner<Object, Object, Object> join = (l, r) -> joined(0, l, r);
                return a.asText().equals("join") ? stream.join(table, join, with) : stream.leftJoin(table, join, with);
            }
            case "stream_stream": {
                KStream<Object, Object> left = stream(build(a)), right = stream(build(b));
                JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, Duration.ofMillis(e.asLong()))
                    .before(Duration.ofMillis(c.asLong())).after(Duration.ofMillis(d.asLong()));
                ValueJoiner<Object, Object, Object> join = (l, r) -> joined(0, l, r);
                StreamJoined<Object, Object, Object> with = StreamJoined.with(KEY, VALUE, VALUE);
                String kind = node.get(6).asText();
                if (kind.equals("join")) return left.join(right, join, windows, with);
                return kind.equals("left_join") ? left.leftJoin(right, join, windows, with) : left.outerJoin(right, join, windows, with);
            }
            case "self_join": {
                KStream<Object, Object> both = stream(build(b));
                JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, Duration.ofMillis(1_000))
                    .before(Duration.ofMillis(c.asLong())).after(Duration.ofMillis(d.asLong()));
                return both.join(both, (l, r) -> joined(0, l, r), windows, StreamJoined.with(KEY, VALUE, VALUE));
            }
            case "global": {
                KStream<Object, Object> stream = stream(build(b));
                GlobalKTable<Object, Object> table = builder.globalTable(c.asText(), Consumed.with(KEY, VALUE));
                KeyValueMapper<Object, Object, Object> key = (k, v) -> selected(d.asInt(), v);
                ValueJoiner<Object, Object, Object> join = (l, r) -> joined(0, l, r);
                return a.asText().equals("join") ? stream.join(table, key, join) : stream.leftJoin(table, key, join);
            }
            case "table_group": {
                KGroupedTable<Object, Object> group = table(build(a)).groupBy((k, v) -> paired(b.asInt(), v), Grouped.with(KEY, VALUE));
                Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> rows = d.isNull() ? Materialized.with(KEY, VALUE) : rows(d, null);
                switch (c.asText()) {
                    case "count": return group.count((Materialized<Object, Long, KeyValueStore<Bytes, byte[]>>) (Object) rows);
                    case "reduce": return group.reduce((l, r) -> text(l) + "+" + text(r), (l, r) -> text(l) + "-" + text(r), rows);
                    default: return group.aggregate(() -> "", (k, v, x) -> added(v, x, "+"), (k, v, x) -> added(v, x, "-"), rows);
                }
            }
            case "group": return aggregated(stream(build(a)), b, c, d.asText(), e);
            case "cogroup": {
                Aggregator<Object, Object, Object> first = (k, v, x) -> added(v, x, "+"), second = (k, v, x) -> added(v, x, "*");
                CogroupedKStream<Object, Object> cogroup = stream(build(a)).groupByKey(Grouped.with(KEY, VALUE)).cogroup(first)
                    .cogroup(stream(build(b)).groupByKey(Grouped.with(KEY, VALUE)), second);
                if (c.isNull()) return cogroup.aggregate(() -> null, d.isNull() ? Materialized.with(KEY, VALUE) : rows(d, null));
                Duration size = Duration.ofMillis(c.get(1).asLong()), grace = Duration.ofMillis(c.get(2).asLong());
                if (c.get(0).asText().equals("session"))
                    return cogroup.windowedBy(SessionWindows.ofInactivityGapAndGrace(size, grace))
                        .aggregate(() -> null, (k, l, r) -> l == null ? r : text(l) + "|" + text(r), Materialized.with(KEY, VALUE));
                if (c.get(0).asText().equals("sliding"))
                    return cogroup.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(size, grace))
                        .aggregate(() -> null, Materialized.<Object, Object, WindowStore<Bytes, byte[]>>with(KEY, VALUE).withRetention(LONG));
                return cogroup.windowedBy(time(c)).aggregate(() -> null, Materialized.<Object, Object, WindowStore<Bytes, byte[]>>with(KEY, VALUE).withRetention(LONG));
            }
            case "suppress": {
                KTable<Object, Object> table = table(build(a));
                if (b.asText().equals("close")) return ((KTable) table).suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()));
                Suppressed.EagerBufferConfig buffer = d.isNull() ? Suppressed.BufferConfig.maxBytes(1L << 40) : Suppressed.BufferConfig.maxRecords(d.asLong());
                return table.suppress(Suppressed.untilTimeLimit(Duration.ofMillis(c.asLong()), buffer));
            }
            default: throw new IllegalArgumentException(what);
        }
    }

    Object aggregated(KStream<Object, Object> stream, JsonNode selector, JsonNode window, String kind, JsonNode store) {
        KGroupedStream<Object, Object> group = selector.isNull() ? stream.groupByKey(Grouped.with(KEY, VALUE))
            : stream.groupBy((k, v) -> selected(selector.asInt(), v), Grouped.with(KEY, VALUE));
        Reducer<Object> reducer = (l, r) -> first(r).equals("d") ? null : text(l) + "+" + text(r);
        Initializer<Object> nothing = () -> null;
        Aggregator<Object, Object, Object> add = (k, v, x) -> added(v, x, "+");
        if (window.isNull()) {
            Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> rows = store.isNull() ? Materialized.with(KEY, VALUE) : rows(store, null);
            if (kind.equals("count")) return group.count((Materialized<Object, Long, KeyValueStore<Bytes, byte[]>>) (Object) rows);
            return kind.equals("reduce") ? group.reduce(reducer, rows) : group.aggregate(nothing, add, rows);
        }
        Duration grace = Duration.ofMillis(window.get(2).asLong());
        if (window.get(0).asText().equals("session")) {
            SessionWindowedKStream<Object, Object> windowed = group.windowedBy(
                SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(window.get(1).asLong()), grace));
            if (window.get(4).asBoolean()) windowed = windowed.emitStrategy(EmitStrategy.onWindowClose());
            Materialized<Object, Object, SessionStore<Bytes, byte[]>> rows = store.isNull() ? Materialized.with(KEY, VALUE)
                : Materialized.<Object, Object, SessionStore<Bytes, byte[]>>as(store.asText()).withKeySerde(KEY).withValueSerde(VALUE);
            if (kind.equals("count")) return windowed.count((Materialized<Object, Long, SessionStore<Bytes, byte[]>>) (Object) rows);
            if (kind.equals("reduce")) return windowed.reduce(reducer, rows);
            return windowed.aggregate(nothing, add, (k, l, r) -> l == null ? r : text(l) + "|" + text(r), rows);
        }
        TimeWindowedKStream<Object, Object> windowed = window.get(0).asText().equals("sliding")
            ? group.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(window.get(1).asLong()), grace))
            : group.windowedBy(time(window));
        if (window.get(4).asBoolean()) windowed = windowed.emitStrategy(EmitStrategy.onWindowClose());
        Materialized<Object, Object, WindowStore<Bytes, byte[]>> rows = (store.isNull()
            ? Materialized.<Object, Object, WindowStore<Bytes, byte[]>>with(KEY, VALUE)
            : Materialized.<Object, Object, WindowStore<Bytes, byte[]>>as(store.asText()).withKeySerde(KEY).withValueSerde(VALUE)).withRetention(LONG);
        if (kind.equals("count")) return windowed.count((Materialized<Object, Long, WindowStore<Bytes, byte[]>>) (Object) rows);
        return kind.equals("reduce") ? windowed.reduce(reducer, rows) : windowed.aggregate(nothing, add, rows);
    }

    static TimeWindows time(JsonNode window) {
        return TimeWindows.ofSizeAndGrace(Duration.ofMillis(window.get(1).asLong()), Duration.ofMillis(window.get(2).asLong()))
            .advanceBy(Duration.ofMillis(window.get(3).asLong()));
    }

    static Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> rows(JsonNode name, JsonNode history) {
        Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> rows = history == null || history.isNull()
            ? Materialized.as(name.asText())
            : Materialized.as(Stores.persistentVersionedKeyValueStore(name.asText(), Duration.ofMillis(history.asLong())));
        return rows.withKeySerde(KEY).withValueSerde(VALUE);
    }

    @SuppressWarnings("unchecked") static KStream<Object, Object> stream(Object built) { return (KStream<Object, Object>) built; }
    @SuppressWarnings("unchecked") static KTable<Object, Object> table(Object built) { return (KTable<Object, Object>) built; }

    /** Joins the values of each key, and tells them as time passes. */
    static class Keeping extends ContextualProcessor<Object, Object, Object, Object> {
        final String store;
        final int kind;
        KeyValueStore<Object, Object> rows;
        Cancellable once;

        Keeping(String store, int kind) { this.store = store; this.kind = kind; }

        @Override public void init(ProcessorContext<Object, Object> context) {
            super.init(context);
            rows = context.getStateStore(store);
            if (kind == 0) schedule("x", 7);
            if (kind == 1) { schedule("x", 10); schedule("y", 3); }
            if (kind == 2) once = context.schedule(Duration.ofMillis(5), PunctuationType.STREAM_TIME, now -> { once.cancel(); tell("x", now); });
        }

        void schedule(String name, long interval) {
            context().schedule(Duration.ofMillis(interval), PunctuationType.STREAM_TIME, now -> tell(name, now));
        }

        void tell(String name, long now) {
            List<KeyValue<Object, Object>> all = new ArrayList<>();
            try (KeyValueIterator<Object, Object> found = rows.all()) { found.forEachRemaining(all::add); }
            for (KeyValue<Object, Object> row : all) context().forward(new Record<>(row.key, text(row.value) + name, now));
        }

        @Override public void process(Record<Object, Object> record) {
            String key = text(record.key());
            Object before = rows.get(key);
            rows.put(key, record.value() == null ? null : (before == null ? "" : text(before)) + text(record.value()));
            context().forward(record.withValue(rows.get(key)));
        }
    }

    /** Tells what is in its store up to the key of each record, and behind it. */
    static class Ranging extends ContextualProcessor<Object, Object, Object, Object> {
        final String store;
        KeyValueStore<Object, Object> rows;

        Ranging(String store) { this.store = store; }

        @Override public void init(ProcessorContext<Object, Object> context) {
            super.init(context);
            rows = context.getStateStore(store);
        }

        @Override public void process(Record<Object, Object> record) {
            Object key = record.key();
            if (key == null) return;
            StringBuilder told = new StringBuilder();
            Object before = record.value() == null ? rows.delete(key)
                : first(record.value()).equals("b") ? rows.putIfAbsent(key, record.value()) : rows.get(key);
            if (first(record.value()).equals("a")) rows.put(key, record.value());
            told.append(text(before));
            tell(told, rows.range(null, key));
            tell(told, rows.reverseRange(key, null));
            tell(told, rows.prefixScan((String) key, new StringSerializer()));
            tell(told, rows.all());
            context().forward(record.withValue(told.toString()));
        }

        static void tell(StringBuilder told, KeyValueIterator<Object, Object> found) {
            told.append("/");
            try (found) { found.forEachRemaining(row -> told.append(row.key).append("=").append(row.value).append(",")); }
        }
    }

    /** Adds a header, or removes all. */
    static class Marking extends ContextualFixedKeyProcessor<Object, Object, Object> {
        final int kind;

        Marking(int kind) { this.kind = kind; }

        @Override public void process(FixedKeyRecord<Object, Object> record) {
            RecordHeaders headers = kind == 1 ? new RecordHeaders() : new RecordHeaders(record.headers());
            if (kind == 0) headers.add("n", "more".getBytes(StandardCharsets.UTF_8));
            context().forward(record.withHeaders(headers));
        }
    }

    // -- functions ------------------------------------------------------------------------------------------------

    static String text(Object value) { return value == null ? "null" : value.toString(); }
    static Object text(JsonNode value) { return value.isNull() ? null : value.asText(); }
    static String first(Object value) { return text(value).substring(0, 1); }

    static long eventTime(int number, org.apache.kafka.clients.consumer.ConsumerRecord<Object, Object> record, long partitionTime) {
        if (number == 2) return Math.max(partitionTime, record.timestamp());
        if (number == 3) return record.timestamp() - 4;
        return first(record.value()).equals("c") ? -1 : record.timestamp();
    }
    static boolean passes(int number, Object key, Object value) {
        if (number == 3) return key != null;
        return number == 0 ? first(value).equals("a") : number == 1 ? text(value).length() % 2 == 0 : !first(value).equals("c");
    }
    static Object mapped(int number, Object value) {
        if (value == null) return null;
        return number == 0 ? text(value) + "'" : number == 1 ? (first(value).equals("c") ? null : value) : first(value) + "1";
    }
    static Object selected(int number, Object value) {
        if (value == null || number != 0 && first(value).equals("c")) return null;
        return number == 2 ? "all" : first(value);
    }
    static KeyValue<Object, Object> paired(int number, Object value) {
        if (number == 0) return KeyValue.pair("all", value);
        if (number == 1) return KeyValue.pair(selected(1, value), value);
        if (first(value).equals("c")) return null;
        return KeyValue.pair(first(value), first(value).equals("b") ? null : value);
    }
    static Object joined(int number, Object left, Object right) {
        return number == 1 && first(left).equals("c") ? null : text(left) + "|" + text(right);
    }
    static Object added(Object value, Object aggregate, String sign) {
        return first(value).equals("d") ? null : (aggregate == null ? "" : text(aggregate)) + sign + text(value);
    }

    // -- texts and numbers as bytes -----------------------------------------------------------------------------------

    static Serde<Object> serde() { return new AnySerde(); }

    public static class AnySerde implements Serde<Object> {
        @Override public Serializer<Object> serializer() {
            return (topic, value) -> value == null ? null : (value instanceof Long ? "#" + value : value.toString()).getBytes(StandardCharsets.UTF_8);
        }
        @Override public Deserializer<Object> deserializer() {
            return (topic, data) -> {
                if (data == null) return null;
                String found = new String(data, StandardCharsets.UTF_8);
                return found.startsWith("#") ? (Object) Long.parseLong(found.substring(1)) : found;
            };
        }
    }
}
