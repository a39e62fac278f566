// The topologies of benchmarks/streams.py on Kafka Streams: exactly once v2, everything else as it comes.
// Usage: KafkaStreamsPeer WORKLOAD BOOTSTRAP APPLICATION_ID INPUT TABLE OUTPUT READY_FILE STATE_FOLDER THREADS
// Once all threads run, the time (ms since the epoch) is written to READY_FILE; it runs until SIGTERM.

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

public final class KafkaStreamsPeer {
    private static final Serde<String> STRING = Serdes.String();
    private static final Duration WINDOW = Duration.ofMinutes(1);

    static Topology topology(String workload, String input, String table, String output) {
        var builder = new StreamsBuilder();
        KStream<String, String> stream = builder.stream(input, Consumed.with(STRING, STRING));
        switch (workload) {
            case "map" -> stream.mapValues(value -> value.toUpperCase(Locale.ROOT))
                    .to(output, Produced.with(STRING, STRING));
            case "count" -> stream.groupByKey(Grouped.with(STRING, STRING))
                    .count()
                    .toStream()
                    .to(output, Produced.with(STRING, Serdes.Long()));
            case "windowed" -> stream.groupByKey(Grouped.with(STRING, STRING))
                    .windowedBy(TimeWindows.ofSizeWithNoGrace(WINDOW))
                    .count()
                    .toStream()
                    .to(output, Produced.with(
                            WindowedSerdes.timeWindowedSerdeFrom(String.class, WINDOW.toMillis()), Serdes.Long()));
            case "join" -> stream.join(
                            builder.table(table, Consumed.with(STRING, STRING)),
                            (left, right) -> left + right,
                            Joined.with(STRING, STRING, STRING))
                    .to(output, Produced.with(STRING, STRING));
            default -> throw new IllegalArgumentException("no workload is called " + workload);
        }
        return builder.build();
    }

    public static void main(String[] arguments) throws InterruptedException {
        if (arguments.length != 9) {
            System.err.println("nine arguments, see the first lines of KafkaStreamsPeer.java");
            System.exit(2);
        }
        var made = topology(arguments[0], arguments[3], arguments[4], arguments[5]);
        run(made, arguments[1], arguments[2], arguments[6], arguments[7], arguments[8]);
    }

    /** Until SIGTERM. */
    static void run(
            Topology topology, String bootstrap, String application, String ready, String state, String threads)
            throws InterruptedException {
        var settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, state);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, threads);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        var streams = new KafkaStreams(topology, settings);

        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING && !Files.exists(Path.of(ready))) {
                try {
                    Files.writeString(Path.of(ready), Long.toString(System.currentTimeMillis()));
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        var closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(20));
            closed.countDown();
        }));
        streams.start();
        closed.await();
    }

    private KafkaStreamsPeer() {}
}
