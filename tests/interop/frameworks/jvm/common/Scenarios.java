import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Objects;

/** Plays scenarios one after another and prints a line of JSON for each. */
class Scenarios {
    interface Body {
        void play() throws Exception;
    }

    private static final String ONLY = System.getenv().getOrDefault("TWINBUS_ONLY", "");

    static void scenario(String feature, String name, Body body) {
        if (!name.contains(ONLY)) {
            return;
        }
        String reason = "";
        try {
            body.play();
        } catch (Exception | AssertionError | LinkageError fault) {
            StringWriter trace = new StringWriter();
            fault.printStackTrace(new PrintWriter(trace));
            reason = trace.toString();
        }
        String outcome = reason.isEmpty() ? "pass" : "fail";
        System.out.println("{\"feature\": " + quoted(feature) + ", \"scenario\": " + quoted(name)
                + ", \"outcome\": " + quoted(outcome) + ", \"reason\": " + quoted(reason) + "}");
        System.out.flush();
    }

    static void check(boolean isTrue, String what) {
        if (!isTrue) {
            throw new AssertionError(what);
        }
    }

    static void same(Object expected, Object actual) {
        check(Objects.equals(expected, actual), "expected " + expected + ", got " + actual);
    }

    static <T extends Throwable> T refused(Class<T> kind, Body body) throws Exception {
        try {
            body.play();
        } catch (Throwable fault) {
            if (kind.isInstance(fault)) {
                return kind.cast(fault);
            }
            throw new AssertionError("expected " + kind.getSimpleName(), fault);
        }
        throw new AssertionError("expected " + kind.getSimpleName() + ", and nothing was refused");
    }

    static String setting(String name) {
        return Objects.requireNonNull(System.getenv(name), name + " is not set");
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char character : text.toCharArray()) {
            if (character == '"' || character == '\\') {
                out.append('\\').append(character);
            } else if (character < ' ') {
                out.append(String.format("\\u%04x", (int) character));
            } else {
                out.append(character);
            }
        }
        return out.append('"').toString();
    }
}
