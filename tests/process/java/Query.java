import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;

/** A continuous query, read as server-sent events: `java Query.java http://NODE CACHE WHERE COUNT` prints so many changes, each once. */
public final class Query {
    public static void main(String[] words) throws InterruptedException {
        String where = URLEncoder.encode(words[2], StandardCharsets.UTF_8);
        URI query = URI.create(words[0] + "/v1/caches/" + words[1] + "/events?continuous=true&state_first=true&where=" + where);
        int left = Integer.parseInt(words[3]);
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        String last = "";
        while (left > 0) {
            var request = HttpRequest.newBuilder(query).header("Accept", "text/event-stream");
            if (!last.isEmpty()) request.header("Last-Event-ID", last);
            try {
                var answer = client.send(request.build(), BodyHandlers.ofInputStream());
                if (answer.statusCode() >= 500) throw new IOException("try again");
                if (answer.statusCode() != 200) throw new IllegalStateException("refused: " + answer.statusCode());
                try (var lines = new BufferedReader(new InputStreamReader(answer.body(), StandardCharsets.UTF_8))) {
                    String id = "", data = "", event = "";
                    for (String line; left > 0 && (line = lines.readLine()) != null; ) {
                        if (line.startsWith("id: ")) id = line.substring(4);
                        else if (line.startsWith("data: ")) data = line.substring(6);
                        else if (line.startsWith("event: ")) event = line.substring(7);
                        else if (line.isEmpty() && !data.isEmpty()) { // an event is whole at its empty line
                            if (event.equals("error")) throw new IllegalStateException(data);
                            System.out.println(data);
                            last = id;
                            data = event = "";
                            left--;
                        }
                    }
                }
            } catch (IOException gone) { // the node, or the way to it
                Thread.sleep(100);
            }
        }
    }
}
