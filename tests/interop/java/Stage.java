package twinbus.interop;

import static twinbus.interop.Suite.equal;
import static twinbus.interop.Suite.truth;

import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.core.util.UrlBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusServiceVersion;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.UUID;

/** What one scenario works with: stock SDK clients of its own on one connection, closed when it ends. */
final class Stage implements AutoCloseable {
    static final Duration WAIT = Duration.ofSeconds(30);

    private final boolean isAlone;
    private final Deque<AutoCloseable> open = new ArrayDeque<>();
    private ServiceBusClientBuilder shared;

    Stage(boolean isAlone) {
        this.isAlone = isAlone;
    }

    @Override
    public void close() {
        while (!open.isEmpty()) {
            try {
                open.pop().close();
            } catch (Exception | AssertionError ended) {
                // What a scenario broke cannot be closed in order.
            }
        }
    }

    <T extends AutoCloseable> T closing(T opened) {
        open.push(opened);
        return opened;
    }

    String variable(String name) {
        return System.getenv("TWINBUS_" + (isAlone ? "ALONE_" : "") + name);
    }

    String plain() {
        return variable("PLAIN");
    }

    // Errors have to surface at once, not after three retries of a minute.
    private static final AmqpRetryOptions NO_RETRIES = new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(10));

    static final AmqpRetryOptions RETRIES = new AmqpRetryOptions().setMode(AmqpRetryMode.FIXED).setMaxRetries(20)
        .setDelay(Duration.ofMillis(300)).setTryTimeout(Duration.ofSeconds(10));

    ServiceBusClientBuilder newBuilder() {
        return new ServiceBusClientBuilder().connectionString(plain()).retryOptions(NO_RETRIES);
    }

    /** All clients that it builds share one connection. */
    ServiceBusClientBuilder builder() {
        if (shared == null) {
            shared = newBuilder();
        }
        return shared;
    }

    ServiceBusClientBuilder tlsBuilder(AmqpTransportType transport) {
        return new ServiceBusClientBuilder().connectionString(variable("TLS")).retryOptions(NO_RETRIES).transportType(transport);
    }

    ServiceBusSenderClient sender(String queue) {
        return closing(builder().sender().queueName(queue).buildClient());
    }

    ServiceBusSenderClient topicSender(String topic) {
        return closing(builder().sender().topicName(topic).buildClient());
    }

    ServiceBusReceiverClient receiver(String queue) {
        return closing(builder().receiver().queueName(queue).disableAutoComplete().buildClient());
    }

    ServiceBusReceiverClient taker(String queue) {
        return closing(builder().receiver().queueName(queue).receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
    }

    ServiceBusReceiverClient deadLetters(String queue) {
        return closing(builder().receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient());
    }

    ServiceBusReceiverClient subscription(String topic, String name) {
        return closing(builder().receiver().topicName(topic).subscriptionName(name).disableAutoComplete().buildClient());
    }

    ServiceBusSessionReceiverClient sessions(String queue) {
        return closing(builder().sessionReceiver().queueName(queue).disableAutoComplete().buildClient());
    }

    ServiceBusReceiverClient session(String queue, String name) {
        return closing(sessions(queue).acceptSession(name));
    }

    /** The stock client wants HTTPS at port 443; a policy, which any application can add, leads it to the TLS port. */
    ServiceBusAdministrationClient administration() {
        return administrationAt(ServiceBusServiceVersion.getLatest());
    }

    ServiceBusAdministrationClient administrationAt(ServiceBusServiceVersion version) {
        return administration(variable("TLS"), version);
    }

    ServiceBusAdministrationClient administration(String connectionString, ServiceBusServiceVersion version) {
        String port = connectionString.replaceAll("(?s)^Endpoint=sb://[^:;/]+:(\\d+).*$", "$1");
        HttpPipelinePolicy toPort = (context, next) -> {
            try {
                context.getHttpRequest().setUrl(UrlBuilder.parse(context.getHttpRequest().getUrl()).setPort(port).toUrl());
            } catch (java.net.MalformedURLException impossible) {
                throw new IllegalStateException(impossible);
            }
            return next.process();
        };
        return new ServiceBusAdministrationClientBuilder().connectionString(connectionString).serviceVersion(version)
            .retryOptions(new com.azure.core.http.policy.RetryOptions(
                new com.azure.core.http.policy.FixedDelayOptions(0, Duration.ofMillis(1))))
            .addPolicy(toPort).buildClient();
    }

    /** A name that no other scenario uses. */
    static String fresh(String word) {
        return word + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    String queue() {
        return queue(new CreateQueueOptions());
    }

    String queue(CreateQueueOptions options) {
        return administration().createQueue(fresh("queue"), options).getName();
    }

    String sessionQueue() {
        return queue(new CreateQueueOptions().setSessionRequired(true));
    }

    String topic(String... subscriptions) {
        String name = administration().createTopic(fresh("topic")).getName();
        for (String subscription : subscriptions) {
            administration().createSubscription(name, subscription);
        }
        return name;
    }

    static ServiceBusMessage inSession(String session, String body) {
        return new ServiceBusMessage(body).setSessionId(session);
    }

    void send(String queue, String... bodies) {
        List<ServiceBusMessage> messages = new ArrayList<>();
        for (String body : bodies) {
            messages.add(new ServiceBusMessage(body));
        }
        sender(queue).sendMessages(messages);
    }

    /** Exactly as many messages as asked for. */
    static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> taken = new ArrayList<>();
        long deadline = System.nanoTime() + WAIT.toNanos();
        while (taken.size() < count && System.nanoTime() < deadline) {
            receiver.receiveMessages(count - taken.size(), WAIT).forEach(taken::add);
        }
        truth(taken.size() == count, taken.size() + " of " + count + " messages came");
        return taken;
    }

    static ServiceBusReceivedMessage takeOne(ServiceBusReceiverClient receiver) {
        return take(receiver, 1).get(0);
    }

    static void takeNone(ServiceBusReceiverClient receiver) {
        receiver.receiveMessages(1, Duration.ofMillis(300)).forEach(message -> {
            throw new AssertionError("a message came that should not: " + message.getBody());
        });
    }

    static List<String> bodies(Iterable<ServiceBusReceivedMessage> messages) {
        List<String> bodies = new ArrayList<>();
        messages.forEach(message -> bodies.add(message.getBody().toString()));
        return bodies;
    }

    /** Moves the clock of the scenario's own namespace. */
    void passTime(int seconds) throws Exception {
        control("/clock/" + seconds);
    }

    /** Stops the scenario's own namespace and starts it again on its ports and its data. */
    void restart() throws Exception {
        control("/restart");
    }

    private void control(String order) throws Exception {
        truth(isAlone, "this namespace is not the scenario's own");
        HttpRequest request = HttpRequest.newBuilder(URI.create(System.getenv("TWINBUS_CONTROL") + order))
            .POST(HttpRequest.BodyPublishers.noBody()).build();
        equal(200, HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.discarding()).statusCode());
    }
}
