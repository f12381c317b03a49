import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** A network between a client and a server that can be cut. */
final class Relay implements AutoCloseable {
    private final String host;
    private final int target;
    private final ServerSocket listener;
    private final List<Socket> sockets = new CopyOnWriteArrayList<>();

    Relay(String host, int target) throws IOException {
        this.host = host;
        this.target = target;
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        start(this::accept);
    }

    int port() {
        return listener.getLocalPort();
    }

    /** Ends every connection; new ones pass. */
    void cut() throws IOException {
        for (Socket socket : sockets) {
            socket.close();
        }
        sockets.clear();
    }

    @Override
    public void close() throws IOException {
        listener.close();
        cut();
    }

    private void accept() throws IOException {
        while (true) {
            Socket near = listener.accept();
            Socket far = new Socket(host, target);
            sockets.addAll(List.of(near, far));
            start(() -> copy(near, far));
            start(() -> copy(far, near));
        }
    }

    private static void copy(Socket from, Socket to) throws IOException {
        try (from; to) {
            InputStream in = from.getInputStream();
            OutputStream out = to.getOutputStream();
            in.transferTo(out);
        }
    }

    private static void start(Scenarios.Body work) {
        Thread thread = new Thread(() -> {
            try {
                work.play();
            } catch (Exception over) {
                // The connection or the relay was closed.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}
