import java.nio.charset.StandardCharsets;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.camel.CamelContext;
import org.apache.camel.CamelExecutionException;
import org.apache.camel.Exchange;
import org.apache.camel.ProducerTemplate;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.impl.DefaultCamelContext;

/** Routes of Apache Camel from and to Service Bus. Their entities exist. */
public final class CamelScenarios extends Scenarios {
    private static final long WAIT_S = 20;
    private static final String HEADER = "CamelAzureServiceBus";

    private final String credentials = "connectionString=RAW(" + setting("TWINBUS_PLAIN") + ")";
    private final CamelContext camel = new DefaultCamelContext();
    private ProducerTemplate producer;

    public static void main(String[] arguments) throws Exception {
        new CamelScenarios().playAll();
        System.exit(0);
    }

    private void playAll() throws Exception {
        camel.start();
        producer = camel.createProducerTemplate();
        scenario("send", "a route sends text, bytes and headers, and another one gets them", this::queue);
        scenario("batch", "a list is sent as messages of its own, in order", this::batch);
        scenario("receive", "a route deletes what it receives", this::receiveAndDelete);
        scenario("settlement", "a message whose route fails comes again", this::abandoned);
        scenario("dead-letter", "a message whose route fails is a dead letter where the route says so", this::deadLettered);
        scenario("scheduling", "a route sends for later", this::scheduled);
        scenario("sessions", "a route gets the messages of a session in order", this::sessions);
        scenario("topics and rules", "routes receive from subscriptions", this::topic);
        scenario("errors", "a route to an unknown queue fails", this::unknown);
    }

    private String uri(String entity, String... options) {
        return "azure-servicebus:" + entity + "?" + credentials + String.join("", options);
    }

    /** Starts a route and returns what arrives at its end. */
    private BlockingQueue<Exchange> route(String uri) throws Exception {
        BlockingQueue<Exchange> arrived = new LinkedBlockingQueue<>();
        camel.addRoutes(new RouteBuilder() {
            @Override
            public void configure() {
                from(uri).process(exchange -> arrived.add(exchange.copy()));
            }
        });
        return arrived;
    }

    /** The component adds to the map that it is given. */
    private static Map<String, Object> properties(String region) {
        return new HashMap<>(Map.of("region", region));
    }

    private static Exchange next(BlockingQueue<Exchange> arrived) throws InterruptedException {
        Exchange exchange = arrived.poll(WAIT_S, TimeUnit.SECONDS);
        check(exchange != null, "no message came");
        return exchange;
    }

    private static String text(Exchange exchange) {
        return exchange.getMessage().getBody(String.class);
    }

    private void queue() throws Exception {
        BlockingQueue<Exchange> arrived = route(uri("camel-queue"));
        Map<String, Object> headers = Map.of(
                HEADER + "CorrelationId", "c1", HEADER + "ApplicationProperties", properties("emea"));
        producer.sendBodyAndHeaders(uri("camel-queue"), "hello", headers);
        Exchange got = next(arrived);
        same("hello", text(got));
        same("c1", got.getMessage().getHeader(HEADER + "CorrelationId"));
        same(0L, got.getMessage().getHeader(HEADER + "DeliveryCount"));
        same("emea", ((Map<?, ?>) got.getMessage().getHeader(HEADER + "ApplicationProperties")).get("region"));
        for (String name : List.of("MessageId", "LockToken", "LockedUntil", "SequenceNumber", "EnqueuedTime")) {
            check(got.getMessage().getHeader(HEADER + name) != null, "it has no " + name);
        }
        producer.sendBody(uri("camel-queue", "&binary=true"), "grüße".getBytes(StandardCharsets.UTF_8));
        same("grüße", text(next(arrived)));
    }

    private void batch() throws Exception {
        BlockingQueue<Exchange> arrived = route(uri("camel-batch"));
        producer.sendBody(uri("camel-batch"), List.of("a", "b", "c"));
        List<String> got = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            got.add(text(next(arrived)));
        }
        same(List.of("a", "b", "c"), got);
    }

    private void receiveAndDelete() throws Exception {
        BlockingQueue<Exchange> arrived = route(uri("camel-delete", "&serviceBusReceiveMode=RECEIVE_AND_DELETE"));
        producer.sendBody(uri("camel-delete"), "once");
        same("once", text(next(arrived)));
    }

    private void failing(String uri, int times, BlockingQueue<Exchange> arrived) throws Exception {
        int[] left = {times};
        camel.addRoutes(new RouteBuilder() {
            @Override
            public void configure() {
                from(uri).process(exchange -> {
                    if (left[0]-- > 0) {
                        throw new IllegalStateException("no stock");
                    }
                    arrived.add(exchange.copy());
                });
            }
        });
    }

    private void abandoned() throws Exception {
        BlockingQueue<Exchange> arrived = new LinkedBlockingQueue<>();
        failing(uri("camel-failing"), 2, arrived);
        producer.sendBody(uri("camel-failing"), "third time lucky");
        Exchange got = next(arrived);
        same("third time lucky", text(got));
        same(2L, got.getMessage().getHeader(HEADER + "DeliveryCount"));
    }

    private void deadLettered() throws Exception {
        BlockingQueue<Exchange> dead = route(uri("camel-poison", "&subQueue=DEAD_LETTER_QUEUE"));
        failing(uri("camel-poison", "&enableDeadLettering=true"), 1, new LinkedBlockingQueue<>());
        producer.sendBody(uri("camel-poison"), "bad");
        Exchange got = next(dead);
        same("bad", text(got));
        check(got.getMessage().getHeader(HEADER + "DeadLetterReason") != null, "it has no reason");
    }

    private void scheduled() throws Exception {
        BlockingQueue<Exchange> arrived = route(uri("camel-scheduled"));
        OffsetDateTime due = OffsetDateTime.now().plusSeconds(1);
        producer.sendBodyAndHeader(
                uri("camel-scheduled", "&producerOperation=scheduleMessages"), "later", HEADER + "ScheduledEnqueueTime", due);
        same("later", text(next(arrived)));
        check(!OffsetDateTime.now().isBefore(due), "it came too early");
    }

    private void sessions() throws Exception {
        producer.sendBody(uri("camel-sessions", "&sessionId=blue"), List.of("one", "two"));
        BlockingQueue<Exchange> arrived = route(uri("camel-sessions", "&sessionEnabled=true"));
        for (String expected : List.of("one", "two")) {
            Exchange got = next(arrived);
            same(expected, text(got));
            same("blue", got.getMessage().getHeader(HEADER + "SessionId"));
        }
    }

    private void topic() throws Exception {
        BlockingQueue<Exchange> all = route(uri("camel-topic", "&serviceBusType=topic&subscriptionName=all"));
        BlockingQueue<Exchange> emea = route(uri("camel-topic", "&serviceBusType=topic&subscriptionName=emea"));
        String topic = uri("camel-topic", "&serviceBusType=topic");
        producer.sendBodyAndHeader(topic, "one", HEADER + "ApplicationProperties", properties("apac"));
        producer.sendBodyAndHeader(topic, "two", HEADER + "ApplicationProperties", properties("emea"));
        same("two", text(next(emea)));
        same(List.of("one", "two"), List.of(text(next(all)), text(next(all))));
    }

    private void unknown() throws Exception {
        CamelExecutionException fault =
                refused(CamelExecutionException.class, () -> producer.sendBody(uri("camel-unknown"), "lost"));
        check(String.valueOf(fault.getCause()).contains("camel-unknown"), "it does not say which: " + fault.getCause());
    }
}
