// Reads records of a topic with schemas in JSON, a line each (key and value in base64, - for null), and prints what Debezium's own
// ExtractNewRecordState makes of them: the key, and the row that is left, or null for a removal.

import io.debezium.transforms.ExtractNewRecordState;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

public class Unwrap {
    public static void main(String[] args) throws Exception {
        JsonConverter keys = new JsonConverter(), values = new JsonConverter(), out = new JsonConverter();
        keys.configure(Map.of("schemas.enable", "true"), true);
        values.configure(Map.of("schemas.enable", "true"), false);
        out.configure(Map.of("schemas.enable", "false"), false);
        ExtractNewRecordState<SourceRecord> unwrap = new ExtractNewRecordState<>();
        unwrap.configure(Map.of("delete.tombstone.handling.mode", "tombstone"));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ");
            SchemaAndValue key = keys.toConnectData("t", decoded(parts[0])), value = values.toConnectData("t", decoded(parts[1]));
            SourceRecord record = new SourceRecord(null, null, "t", 0, key.schema(), key.value(), value.schema(), value.value());
            SourceRecord left = unwrap.apply(record);
            if (left == null) {
                continue;
            }
            Struct row = (Struct) left.key();
            Field first = row.schema().fields().get(0);
            byte[] text = left.value() == null ? null : out.fromConnectData("t", left.valueSchema(), left.value());
            String shown = text == null ? "null" : new String(text, StandardCharsets.UTF_8);
            System.out.println(Base64.getEncoder().encodeToString(String.valueOf(row.get(first)).getBytes(StandardCharsets.UTF_8)) + " " + shown);
        }
        unwrap.close();
    }

    private static byte[] decoded(String part) {
        return part.equals("-") ? null : Base64.getDecoder().decode(part);
    }
}
