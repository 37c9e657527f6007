import java.util.HashMap;
import java.util.Map;

/** A word and named values, {@code loop tasks=64 keys=/path ..}. */
final class Line {
    final String what;
    private final Map<String, String> values = new HashMap<>();

    Line(String line) {
        String[] words = line.split(" ");
        what = words[0];
        for (int index = 1; index < words.length; index++) {
            String[] parts = words[index].split("=", 2);
            values.put(parts[0], parts[1]);
        }
    }

    String text(String name) {
        return values.get(name);
    }

    long number(String name, long otherwise) {
        return values.containsKey(name) ? number(name) : otherwise;
    }

    long number(String name) {
        return Long.parseLong(values.get(name));
    }
}
