import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;

/** A durable listener, read as lines: `java Listen.java http://NODE CACHE LISTENER COUNT` prints so many events, each once. */
public final class Listen {
    private static final String POSITION = "\"position\":\"";
    private static final int ACKNOWLEDGED_EVERY = 100;
    private static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    public static void main(String[] words) throws InterruptedException {
        String cache = words[0] + "/v1/caches/" + words[1], listener = words[2];
        int left = Integer.parseInt(words[3]);
        String position = ""; // at first: where the listener has acknowledged
        while (left > 0) {
            String from = position.isEmpty() ? "" : "&position=" + position;
            URI events = URI.create(cache + "/events?follow=true&listener=" + listener + from);
            try {
                var answer = CLIENT.send(HttpRequest.newBuilder(events).build(), BodyHandlers.ofInputStream());
                check(answer.statusCode());
                try (var lines = new BufferedReader(new InputStreamReader(answer.body(), StandardCharsets.UTF_8))) {
                    for (String line; left > 0 && (line = lines.readLine()) != null; ) {
                        if (line.startsWith("{\"error\"") || !line.contains(POSITION)) throw new IllegalStateException(line);
                        System.out.println(line);
                        position = line.substring(line.lastIndexOf(POSITION) + POSITION.length(), line.length() - 2);
                        left--; // before anything that may fail: the event is printed
                        if (left % ACKNOWLEDGED_EVERY == 0) acknowledge(cache + "/listeners/" + listener + "/position", position);
                    }
                }
            } catch (IOException gone) { // the node, or the way to it
                Thread.sleep(100);
            }
        }
    }

    private static void acknowledge(String place, String position) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(place))
            .header("Content-Type", "application/json")
            .PUT(BodyPublishers.ofString("{" + POSITION + position + "\"}"))
            .build();
        check(CLIENT.send(request, BodyHandlers.discarding()).statusCode());
    }

    private static void check(int status) throws IOException {
        if (status >= 500 || status == 429) throw new IOException("try again: " + status);
        if (status != 200) throw new IllegalStateException("refused: " + status);
    }
}
