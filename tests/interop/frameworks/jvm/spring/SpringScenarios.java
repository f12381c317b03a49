import com.azure.spring.messaging.implementation.annotation.EnableAzureMessaging;
import com.azure.spring.messaging.servicebus.core.ServiceBusTemplate;
import com.azure.spring.messaging.servicebus.implementation.core.annotation.ServiceBusListener;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.TextMessage;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.jms.annotation.EnableJms;
import org.springframework.jms.annotation.JmsListener;
import org.springframework.jms.config.DefaultJmsListenerContainerFactory;
import org.springframework.jms.connection.JmsTransactionManager;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.messaging.handler.annotation.SendTo;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.transaction.support.TransactionTemplate;

/** A Spring Boot application with the starter for Service Bus over JMS, and with Spring's messages over the Java SDK. */
public final class SpringScenarios extends Scenarios {
    private static final long WAIT_MS = 20_000;
    private static final Map<String, BlockingQueue<String>> ARRIVED = new ConcurrentHashMap<>();
    private static final AtomicInteger FAILURES_LEFT = new AtomicInteger(2);

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @EnableJms
    @EnableAzureMessaging
    @Import(Listeners.class)
    static class Application {
        @Bean
        DefaultJmsListenerContainerFactory transacted(ConnectionFactory connectionFactory) {
            DefaultJmsListenerContainerFactory factory = new DefaultJmsListenerContainerFactory();
            factory.setConnectionFactory(connectionFactory);
            factory.setSessionTransacted(true);
            return factory;
        }
    }

    static class Listeners {
        @JmsListener(destination = "spring-queue")
        void queue(TextMessage message) throws JMSException {
            arrived("spring-queue", message.getText() + " " + message.getStringProperty("region"));
        }

        @JmsListener(destination = "spring-questions")
        @SendTo("spring-answers")
        String answer(String question) {
            return question + " 42";
        }

        @JmsListener(destination = "spring-failing", containerFactory = "transacted")
        void failing(Message message) throws JMSException {
            if (FAILURES_LEFT.getAndDecrement() > 0) {
                throw new IllegalStateException("no stock");
            }
            arrived("spring-failing", "delivery " + message.getIntProperty("JMSXDeliveryCount"));
        }

        @JmsListener(destination = "spring-topic/Subscriptions/all")
        void subscription(String body) {
            arrived("spring-topic", body);
        }

        @ServiceBusListener(destination = "spring-messages")
        void message(String body) {
            arrived("spring-messages", body);
        }
    }

    private final JmsTemplate jms;
    private final ConfigurableApplicationContext context;

    private SpringScenarios(ConfigurableApplicationContext context) {
        this.context = context;
        jms = context.getBean(JmsTemplate.class);
        jms.setReceiveTimeout(WAIT_MS);
    }

    public static void main(String[] arguments) {
        SpringApplication application = new SpringApplication(Application.class);
        application.setWebApplicationType(WebApplicationType.NONE);
        String keys = "SharedAccessKeyName=" + setting("TWINBUS_KEY_NAME") + ";SharedAccessKey=" + setting("TWINBUS_KEY");
        Map<String, Object> properties = new HashMap<>();
        properties.put("spring.main.banner-mode", "off");
        properties.put("logging.level.root", "error");
        properties.put("spring.jms.servicebus.connection-string", "Endpoint=sb://" + setting("TWINBUS_NAME") + "/;" + keys);
        properties.put("spring.jms.servicebus.pricing-tier", "standard");
        properties.put("spring.cloud.azure.servicebus.connection-string", setting("TWINBUS_PLAIN"));
        properties.put("spring.cloud.azure.servicebus.entity-type", "queue");
        application.setDefaultProperties(properties);
        new SpringScenarios(application.run()).playAll();
        System.exit(0);
    }

    private void playAll() {
        scenario("processor", "a @JmsListener gets what a JmsTemplate sends", this::listener);
        scenario("processor", "the answer of a @JmsListener is sent to where it says", this::answer);
        scenario("receive", "a JmsTemplate receives and sends again", this::template);
        scenario("settlement", "a message whose listener fails comes again", this::failing);
        scenario("transactions", "a transaction of Spring receives and sends, or neither", this::transaction);
        scenario("topics and rules", "a @JmsListener gets what is sent to a topic", this::topic);
        scenario("send", "a ServiceBusTemplate sends to a @ServiceBusListener", this::messages);
        scenario("reconnect", "a listener goes on after the network was cut", this::reconnect);
    }

    private static void arrived(String where, String what) {
        ARRIVED.computeIfAbsent(where, name -> new LinkedBlockingQueue<>()).add(what);
    }

    private static String next(String where) throws InterruptedException {
        String found = ARRIVED.computeIfAbsent(where, name -> new LinkedBlockingQueue<>()).poll(WAIT_MS, TimeUnit.MILLISECONDS);
        check(found != null, "no message came");
        return found;
    }

    private void listener() throws Exception {
        jms.convertAndSend("spring-queue", "hello", message -> {
            message.setStringProperty("region", "emea");
            return message;
        });
        same("hello emea", next("spring-queue"));
    }

    private void answer() {
        jms.convertAndSend("spring-questions", "six times seven?");
        same("six times seven? 42", jms.receiveAndConvert("spring-answers"));
    }

    private void template() {
        for (int i = 0; i < 3; i++) {
            jms.convertAndSend("spring-template", "m" + i);
        }
        for (int i = 0; i < 3; i++) {
            same("m" + i, jms.receiveAndConvert("spring-template"));
        }
    }

    private void failing() throws Exception {
        jms.convertAndSend("spring-failing", "order");
        same("delivery 3", next("spring-failing"));
    }

    private void transaction() throws Exception {
        ConnectionFactory factory = context.getBean(ConnectionFactory.class);
        TransactionTemplate transactions = new TransactionTemplate(new JmsTransactionManager(factory));
        jms.convertAndSend("spring-from", "order");
        refused(IllegalStateException.class, () -> transactions.executeWithoutResult(status -> {
            same("order", jms.receiveAndConvert("spring-from"));
            jms.convertAndSend("spring-to", "never");
            throw new IllegalStateException("no stock");
        }));
        transactions.executeWithoutResult(status -> {
            String order = (String) jms.receiveAndConvert("spring-from");
            jms.convertAndSend("spring-to", order + " done");
        });
        same("order done", jms.receiveAndConvert("spring-to"));
    }

    private void topic() throws Exception {
        jms.setPubSubDomain(true);
        try {
            jms.convertAndSend("spring-topic", "news");
        } finally {
            jms.setPubSubDomain(false);
        }
        same("news", next("spring-topic"));
    }

    private void messages() throws Exception {
        ServiceBusTemplate template = context.getBean(ServiceBusTemplate.class);
        template.sendAsync("spring-messages", MessageBuilder.withPayload("by the SDK").build()).block(Duration.ofMillis(WAIT_MS));
        same("by the SDK", next("spring-messages"));
    }

    private void reconnect() throws Exception {
        java.net.http.HttpClient.newHttpClient().send(
                java.net.http.HttpRequest.newBuilder(java.net.URI.create(setting("TWINBUS_CUT")))
                        .POST(java.net.http.HttpRequest.BodyPublishers.noBody()).build(),
                java.net.http.HttpResponse.BodyHandlers.discarding());
        jms.convertAndSend("spring-queue", "after", message -> {
            message.setStringProperty("region", "apac");
            return message;
        });
        same("after apac", next("spring-queue"));
    }
}
