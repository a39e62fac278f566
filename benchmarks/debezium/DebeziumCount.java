import io.debezium.engine.DebeziumEngine;
import io.debezium.embedded.Connect;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium embedded whose consumer only counts: no Avro, no Kafka. Arguments: settings as name=value, then how many
 * records to wait for. Prints a line of JSON: milliseconds from the process's start to the first and the last record.
 */
public final class DebeziumCount {
    public static void main(String[] arguments) throws Exception {
        long began = ProcessHandle.current().info().startInstant().get().toEpochMilli();
        Properties settings = new Properties();
        for (int i = 0; i < arguments.length - 1; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.setProperty(pair[0], pair[1]);
        }
        long wanted = Long.parseLong(arguments[arguments.length - 1]);
        long[] seen = new long[3];
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine = DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
            .using(settings)
            .notifying((List<RecordChangeEvent<SourceRecord>> records, DebeziumEngine.RecordCommitter<RecordChangeEvent<SourceRecord>> committer) -> {
                for (RecordChangeEvent<SourceRecord> record : records) {
                    if (record.record().topic().endsWith("pgbench_accounts")) {
                        if (seen[0]++ == 0) {
                            seen[1] = System.currentTimeMillis();
                        }
                    }
                    committer.markProcessed(record);
                }
                committer.markBatchFinished();
                if (seen[0] >= wanted && seen[2] == 0) {
                    seen[2] = System.currentTimeMillis();
                    System.out.println("{\"records\": " + seen[0] + ", \"first_ms\": " + (seen[1] - began)
                        + ", \"last_ms\": " + (seen[2] - began) + "}");
                    System.out.flush();
                }
            })
            .build();
        Thread thread = new Thread(engine, "engine");
        thread.start();
        while (System.in.read() >= 0) {
            continue;
        }
        engine.close();
        System.exit(0);
    }
}
