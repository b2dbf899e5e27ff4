// Reads records of a topic, a line each (key and value in base64, - for null), and prints what Debezium's own ExtractNewRecordState makes
// of them: the key, and the row that is left, or null for a removal. Records have their schema in JSON beside them, or with
// -Dregistry=URL are Avro in Confluent's frame, whose schemas are asked for there.

import io.debezium.transforms.ExtractNewRecordState;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

public class Unwrap {
    private interface Reader {
        SchemaAndValue read(byte[] data) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        JsonConverter keys = new JsonConverter(), values = new JsonConverter(), out = new JsonConverter();
        keys.configure(Map.of("schemas.enable", "true"), true);
        values.configure(Map.of("schemas.enable", "true"), false);
        out.configure(Map.of("schemas.enable", "false"), false);
        String registry = System.getProperty("registry");
        Reader avro = registry == null ? null : new AvroReader(registry);
        Reader keyReader = avro != null ? avro : data -> keys.toConnectData("t", data);
        Reader valueReader = avro != null ? avro : data -> values.toConnectData("t", data);
        ExtractNewRecordState<SourceRecord> unwrap = new ExtractNewRecordState<>();
        unwrap.configure(Map.of("delete.tombstone.handling.mode", "tombstone"));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ");
            SchemaAndValue key = keyReader.read(decoded(parts[0])), value = valueReader.read(decoded(parts[1]));
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

    /** What a converter of Avro does: the writer's schema by its id, and of both what Connect has instead. */
    private static final class AvroReader implements Reader {
        private final HttpClient client = HttpClient.newHttpClient();
        private final Map<Integer, org.apache.avro.Schema> known = new HashMap<>();
        private final String registry;

        AvroReader(String registry) {
            this.registry = registry;
        }

        @Override
        public SchemaAndValue read(byte[] data) throws Exception {
            if (data == null) {
                return SchemaAndValue.NULL;
            }
            ByteBuffer frame = ByteBuffer.wrap(data);
            if (frame.get() != 0) {
                throw new IllegalArgumentException("no frame of Confluent's");
            }
            org.apache.avro.Schema written = writer(frame.getInt());
            var decoder = DecoderFactory.get().binaryDecoder(data, frame.position(), frame.remaining(), null);
            Object found = new GenericDatumReader<Object>(written).read(null, decoder);
            if (!decoder.isEnd()) {
                throw new IllegalArgumentException("bytes are left over");
            }
            Schema schema = schemaOf(written, false);
            return new SchemaAndValue(schema, valueOf(schema, found));
        }

        private org.apache.avro.Schema writer(int id) throws Exception {
            if (!known.containsKey(id)) {
                URI place = URI.create(registry + "/schemas/ids/" + id + "/schema");
                var answer = client.send(HttpRequest.newBuilder(place).build(), BodyHandlers.ofString());
                if (answer.statusCode() != 200) {
                    throw new IllegalStateException(answer.body());
                }
                known.put(id, new org.apache.avro.Schema.Parser().parse(answer.body()));
            }
            return known.get(id);
        }

        private static Schema schemaOf(org.apache.avro.Schema from, boolean isOptional) {
            SchemaBuilder made;
            switch (from.getType()) {
                case UNION -> {
                    for (org.apache.avro.Schema branch : from.getTypes()) {
                        if (branch.getType() != org.apache.avro.Schema.Type.NULL) {
                            return schemaOf(branch, true);
                        }
                    }
                    throw new IllegalArgumentException(from.toString());
                }
                case RECORD -> {
                    made = SchemaBuilder.struct();
                    for (var field : from.getFields()) {
                        made.field(field.name(), schemaOf(field.schema(), false));
                    }
                    String name = from.getProp("connect.name");
                    made.name(name == null ? from.getFullName() : name);
                }
                case STRING, ENUM -> made = SchemaBuilder.string();
                case LONG -> made = SchemaBuilder.int64();
                case INT -> made = SchemaBuilder.int32();
                case DOUBLE -> made = SchemaBuilder.float64();
                case BOOLEAN -> made = SchemaBuilder.bool();
                default -> throw new IllegalArgumentException(from.toString());
            }
            return isOptional ? made.optional().build() : made.build();
        }

        private static Object valueOf(Schema schema, Object from) {
            if (from instanceof GenericRecord record) {
                Struct made = new Struct(schema);
                schema.fields().forEach(field -> made.put(field, valueOf(field.schema(), record.get(field.name()))));
                return made;
            }
            return from instanceof CharSequence ? from.toString() : from;
        }
    }
}
