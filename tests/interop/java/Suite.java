package twinbus.interop;

import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;

/**
 * What the Java SDK does against a twinbus namespace. The driver describes the namespace in the environment:
 *
 * <pre>
 * TWINBUS_PLAIN            connection string of the port without TLS
 * TWINBUS_TLS              connection string of the TLS port, which speaks AMQP, WebSocket and HTTPS
 * TWINBUS_AUTHORITY        file of the certificate authority that the TLS port's certificate comes from
 * TWINBUS_ALONE_PLAIN      connection string of a namespace whose clock the scenarios move and which they restart
 * TWINBUS_ALONE_TLS        its TLS port
 * TWINBUS_ALONE_AUTHORITY  its authority
 * TWINBUS_CONTROL          where the driver does that: POST /clock/SECONDS, POST /restart
 * </pre>
 *
 * One process plays all scenarios and prints the outcome of each as a line of JSON. They run side by side, except those that
 * move the clock or restart the namespace.
 */
final class Suite {
    private static final int SIDE_BY_SIDE = 6;

    interface Play {
        void on(Stage stage) throws Throwable;
    }

    private record Script(String feature, String name, boolean isAlone, Play play) {
    }

    private static final List<Script> SCRIPTS = new ArrayList<>();

    /** Adds a scenario that may run beside others. */
    static void scenario(String feature, String name, Play play) {
        SCRIPTS.add(new Script(feature, name, false, play));
    }

    /** Adds one that has a namespace of its own and runs while no other of its kind does. */
    static void scenarioAlone(String feature, String name, Play play) {
        SCRIPTS.add(new Script(feature, name, true, play));
    }

    public static void main(String[] arguments) throws Exception {
        trustDevelopmentCertificates();
        MessageScenarios.add();
        SessionScenarios.add();
        TopicScenarios.add();
        AdministrationScenarios.add();
        TransactionScenarios.add();
        ProcessorScenarios.add();
        ConnectionScenarios.add();
        String wanted = Objects.requireNonNullElse(System.getenv("TWINBUS_SCENARIO"), "");
        Queue<Script> together = new ConcurrentLinkedQueue<>();
        Queue<Script> alone = new ConcurrentLinkedQueue<>();
        for (Script script : SCRIPTS) {
            if (script.name.contains(wanted)) {
                (script.isAlone ? alone : together).add(script);
            }
        }
        List<Thread> players = new ArrayList<>();
        for (int player = 0; player <= SIDE_BY_SIDE; player++) {
            Queue<Script> source = player == 0 ? alone : together;
            Thread thread = new Thread(() -> {
                for (Script next = source.poll(); next != null; next = source.poll()) {
                    run(next);
                }
            });
            thread.start();
            players.add(thread);
        }
        for (Thread player : players) {
            player.join();
        }
        System.exit(0); // the SDK's own threads would keep the process
    }

    /**
     * What a user does with keytool, for the whole process: the JVM's trust store becomes one of the two authorities and those it
     * had, before any connection looks at it.
     */
    private static void trustDevelopmentCertificates() throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (String name : List.of("TWINBUS_AUTHORITY", "TWINBUS_ALONE_AUTHORITY")) {
            try (FileInputStream file = new FileInputStream(System.getenv(name))) {
                store.setCertificateEntry(name, factory.generateCertificate(file));
            }
        }
        Path file = Files.createTempFile("twinbus", ".p12");
        file.toFile().deleteOnExit();
        try (FileOutputStream out = new FileOutputStream(file.toFile())) {
            store.store(out, "changeit".toCharArray());
        }
        System.setProperty("javax.net.ssl.trustStore", file.toString());
        System.setProperty("javax.net.ssl.trustStoreType", "PKCS12");
        System.setProperty("javax.net.ssl.trustStorePassword", "changeit");
    }

    private static void run(Script script) {
        long started = System.nanoTime();
        String reason = null;
        try (Stage stage = new Stage(script.isAlone)) {
            script.play.on(stage);
        } catch (Throwable problem) {
            reason = described(problem);
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        synchronized (SCRIPTS) {
            System.out.printf("{\"feature\": %s, \"scenario\": %s, \"outcome\": %s, \"reason\": %s, \"seconds\": %.3f}%n",
                quoted(script.feature), quoted(script.name), quoted(reason == null ? "pass" : "fail"),
                quoted(reason == null ? "" : reason), seconds);
            System.out.flush();
        }
    }

    private static String described(Throwable problem) {
        StringWriter text = new StringWriter();
        problem.printStackTrace(new PrintWriter(text));
        Queue<String> lines = new ArrayDeque<>();
        for (String line : text.toString().split("\n")) {
            if (lines.size() < 12 && (lines.isEmpty() || !line.startsWith("\tat ") || line.contains("twinbus.interop"))) {
                lines.add(line);
            }
        }
        return String.join("\n", lines);
    }

    private static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char character : text.toCharArray()) {
            switch (character) {
                case '"' -> json.append("\\\"");
                case '\\' -> json.append("\\\\");
                case '\n' -> json.append("\\n");
                default -> {
                    if (character < ' ') {
                        json.append(String.format("\\u%04x", (int) character));
                    } else {
                        json.append(character);
                    }
                }
            }
        }
        return json.append('"').toString();
    }

    // What scenarios expect

    static void equal(Object wanted, Object got) {
        boolean isEqual = wanted instanceof byte[] bytes && got instanceof byte[] others
            ? Arrays.equals(bytes, others)
            : wanted instanceof Number number && got instanceof Number other && !(wanted instanceof Double)
                ? number.longValue() == other.longValue()
                : Objects.equals(wanted, got);
        if (!isEqual) {
            throw new AssertionError("wanted " + wanted + ", got " + got);
        }
    }

    static void truth(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static <T extends Throwable> T raises(Class<T> kind, Play play) {
        try {
            play.on(null);
        } catch (Throwable problem) {
            if (kind.isInstance(problem)) {
                return kind.cast(problem);
            }
            throw new AssertionError("wanted " + kind.getSimpleName() + ", got " + problem, problem);
        }
        throw new AssertionError("wanted " + kind.getSimpleName() + ", got no error");
    }

    private Suite() {
    }
}
