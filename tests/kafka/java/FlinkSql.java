// Runs statements of Flink SQL from its input on one cluster in this process, and prints the changelog of each query: a line of JSON for each
// row, with the number of its statement, its kind (+I, -U, +U, -D) and its columns.

import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

public class FlinkSql {
    public static void main(String[] args) throws Exception {
        String[] statements = new String(System.in.readAllBytes(), StandardCharsets.UTF_8).split(";\\s*(\\n|$)");
        Configuration settings = new Configuration();
        settings.set(RestOptions.BIND_ADDRESS, "127.0.0.1");
        settings.set(RestOptions.ADDRESS, "127.0.0.1");
        settings.set(RestOptions.BIND_PORT, "0");
        settings.set(TaskManagerOptions.NETWORK_MEMORY_MIN, MemorySize.ofMebiBytes(16));
        settings.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.ofMebiBytes(16));
        settings.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(32));
        MiniClusterConfiguration wanted =
            new MiniClusterConfiguration.Builder().setConfiguration(settings).setNumTaskManagers(1).setNumSlotsPerTaskManager(2).build();
        try (MiniCluster cluster = new MiniCluster(wanted)) {
            cluster.start();
            URI rest = cluster.getRestAddress().get();
            StreamExecutionEnvironment jobs = StreamExecutionEnvironment.createRemoteEnvironment(rest.getHost(), rest.getPort());
            jobs.setParallelism(2);
            StreamTableEnvironment tables = StreamTableEnvironment.create(jobs);
            ObjectMapper json = JsonMapper.builder().enable(JsonWriteFeature.ESCAPE_NON_ASCII).build();
            for (int number = 0; number < statements.length; number++) {
                if (statements[number].isBlank()) {
                    continue;
                }
                TableResult result = tables.executeSql(statements[number]);
                if (result.getJobClient().isEmpty()) {
                    continue;
                }
                try (CloseableIterator<Row> rows = result.collect()) {
                    while (rows.hasNext()) {
                        Row row = rows.next();
                        Map<String, Object> columns = new LinkedHashMap<>();
                        for (String name : result.getResolvedSchema().getColumnNames()) {
                            columns.put(name, row.getField(name));
                        }
                        System.out.println(json.writeValueAsString(Map.of("statement", number, "kind", row.getKind().shortString(), "row", columns)));
                    }
                }
            }
        }
        System.exit(0); // threads of the cluster that are not yet at their end need not be waited for
    }
}
