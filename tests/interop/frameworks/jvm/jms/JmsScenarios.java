import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

/** An application that knows JMS and nothing of Service Bus. Its entities exist. */
public final class JmsScenarios extends Scenarios {
    private static final long WAIT = 10_000;
    private static final long QUIET = 100;
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101;

    private final String url = setting("TWINBUS_URL");
    private final String keyName = setting("TWINBUS_KEY_NAME");
    private final String key = setting("TWINBUS_KEY");

    public static void main(String[] arguments) {
        new JmsScenarios().playAll();
        System.exit(0);
    }

    private void playAll() {
        scenario("send", "every kind of message arrives as it was sent", this::kinds);
        scenario("send", "headers and properties arrive as they were sent", this::headers);
        scenario("send", "a message of 200 KB arrives", this::large);
        scenario("send", "asynchronous sends are completed", this::asynchronous);
        scenario("send", "a producer without a destination sends to every queue", this::anonymous);
        scenario("receive", "a listener gets every message in order", this::listener);
        scenario("receive", "the simplified interface of JMS 2 works", this::simplified);
        scenario("receive", "a message whose time has passed is not delivered", this::expired);
        scenario("settlement", "AUTO_ACKNOWLEDGE removes what was received", this::automatic);
        scenario("settlement", "CLIENT_ACKNOWLEDGE removes everything up to there", this::client);
        scenario("settlement", "messages are acknowledged one by one", this::individual);
        scenario("settlement", "recover delivers again and counts deliveries", this::recover);
        scenario("settlement", "what a closed consumer had fetched goes to another one", this::prefetched);
        scenario("dead-letter", "a message that is delivered too often is a dead letter", this::deadLetter);
        scenario("transactions", "a committed session has sent and received", this::commit);
        scenario("transactions", "a session that is rolled back sends nothing and receives again", this::rollback);
        scenario("transactions", "a session moves messages from one queue to another", this::move);
        scenario("topics and rules", "a topic delivers to the queues of its subscriptions", this::topic);
        scenario("topics and rules", "rules of a subscription see JMS properties", this::rules);
        scenario("sessions", "JMSXGroupID is the message session", this::group);
        scenario("errors", "an unknown queue is an invalid destination", this::unknown);
        scenario("errors", "a wrong key is a security exception", this::wrongKey);
        scenario("errors", "a selector, a browser and a temporary queue are refused", this::unsupported);
        scenario("TLS", "messages and transactions pass over amqps", this::secure);
        scenario("reconnect", "a failover connection goes on where the network was cut", this::failover);
    }

    private ConnectionFactory factory() {
        return new JmsConnectionFactory(keyName, key, url);
    }

    private interface Work {
        void on(Session session) throws Exception;
    }

    private void with(int acknowledgeMode, Work work) throws Exception {
        try (Connection connection = factory().createConnection()) {
            connection.start();
            work.on(connection.createSession(acknowledgeMode));
        }
    }

    private Queue queue(Session session, String name) throws JMSException {
        return session.createQueue(name);
    }

    private void send(String queue, String... texts) throws Exception {
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            MessageProducer producer = session.createProducer(queue(session, queue));
            for (String text : texts) {
                producer.send(session.createTextMessage(text));
            }
        });
    }

    private List<String> drain(String queue) throws Exception {
        List<String> texts = new ArrayList<>();
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            MessageConsumer consumer = session.createConsumer(queue(session, queue));
            for (Message message = consumer.receive(QUIET); message != null; message = consumer.receive(QUIET)) {
                texts.add(((TextMessage) message).getText());
            }
        });
        return texts;
    }

    private static String text(Message message) throws JMSException {
        check(message != null, "no message came");
        return ((TextMessage) message).getText();
    }

    private void kinds() throws Exception {
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            MessageProducer producer = session.createProducer(queue(session, "kinds"));
            MessageConsumer consumer = session.createConsumer(queue(session, "kinds"));

            producer.send(session.createTextMessage("grüße \u2713"));
            same("grüße \u2713", text(consumer.receive(WAIT)));

            BytesMessage bytes = session.createBytesMessage();
            bytes.writeBytes(new byte[] {0, 1, (byte) 255});
            producer.send(bytes);
            same(3L, ((BytesMessage) consumer.receive(WAIT)).getBodyLength());

            MapMessage map = session.createMapMessage();
            map.setString("name", "pump");
            map.setLong("count", 42);
            producer.send(map);
            MapMessage gotMap = (MapMessage) consumer.receive(WAIT);
            same("pump", gotMap.getString("name"));
            same(42L, gotMap.getLong("count"));

            StreamMessage stream = session.createStreamMessage();
            stream.writeInt(7);
            stream.writeString("seven");
            producer.send(stream);
            StreamMessage gotStream = (StreamMessage) consumer.receive(WAIT);
            same(7, gotStream.readInt());
            same("seven", gotStream.readString());

            ObjectMessage object = session.createObjectMessage(new ArrayList<>(List.of("a", "b")));
            producer.send(object);
            same(List.of("a", "b"), ((ObjectMessage) consumer.receive(WAIT)).getObject());

            producer.send(session.createMessage());
            check(consumer.receive(WAIT) != null, "the message without a body did not come");
        });
    }

    private void headers() throws Exception {
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            MessageProducer producer = session.createProducer(queue(session, "headers"));
            MessageConsumer consumer = session.createConsumer(queue(session, "headers"));
            TextMessage sent = session.createTextMessage("x");
            sent.setJMSCorrelationID("order-7");
            sent.setJMSType("Order");
            sent.setJMSReplyTo(queue(session, "answers"));
            sent.setStringProperty("region", "emea");
            sent.setIntProperty("whole", 5);
            sent.setLongProperty("long", 1L << 40);
            sent.setShortProperty("short", (short) 3);
            sent.setByteProperty("byte", (byte) -1);
            sent.setDoubleProperty("double", 2.5);
            sent.setFloatProperty("float", 1.5f);
            sent.setBooleanProperty("flag", true);
            producer.send(sent, DeliveryMode.PERSISTENT, 7, 600_000);
            TextMessage got = (TextMessage) consumer.receive(WAIT);
            same(sent.getJMSMessageID(), got.getJMSMessageID());
            same("order-7", got.getJMSCorrelationID());
            same("Order", got.getJMSType());
            same("answers", ((Queue) got.getJMSReplyTo()).getQueueName());
            same("headers", ((Queue) got.getJMSDestination()).getQueueName());
            same(7, got.getJMSPriority());
            same(sent.getJMSTimestamp(), got.getJMSTimestamp());
            same(sent.getJMSExpiration(), got.getJMSExpiration());
            same(DeliveryMode.PERSISTENT, got.getJMSDeliveryMode());
            same(false, got.getJMSRedelivered());
            same(1, got.getIntProperty("JMSXDeliveryCount"));
            same("emea", got.getStringProperty("region"));
            same(5, got.getObjectProperty("whole"));
            same(1L << 40, got.getObjectProperty("long"));
            same((short) 3, got.getObjectProperty("short"));
            same((byte) -1, got.getObjectProperty("byte"));
            same(2.5, got.getObjectProperty("double"));
            same(1.5f, got.getObjectProperty("float"));
            same(true, got.getObjectProperty("flag"));
        });
    }

    private void large() throws Exception {
        String text = "x".repeat(200_000);
        send("large", text);
        same(List.of(text), drain("large"));
    }

    private void listener() throws Exception {
        int count = 200;
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(count);
        List<String> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            sent.add("m" + i);
        }
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            session.createConsumer(queue(session, "listener")).setMessageListener(message -> {
                try {
                    got.add(text(message));
                } catch (JMSException fault) {
                    got.add(fault.toString());
                }
                all.countDown();
            });
            send("listener", sent.toArray(new String[0]));
            check(all.await(WAIT, TimeUnit.MILLISECONDS), "only " + got.size() + " messages came");
        });
        same(sent, got);
    }

    private void simplified() throws Exception {
        try (JMSContext context = factory().createContext(); JMSConsumer consumer =
                context.createConsumer(context.createQueue("simplified"))) {
            context.createProducer().setProperty("n", 1).send(context.createQueue("simplified"), "hello");
            same("hello", consumer.receiveBody(String.class, WAIT));
            check(consumer.receiveNoWait() == null, "a second message came");
        }
    }

    private void asynchronous() throws Exception {
        int count = 50;
        CountDownLatch completed = new CountDownLatch(count);
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            MessageProducer producer = session.createProducer(queue(session, "asynchronous"));
            for (int i = 0; i < count; i++) {
                producer.send(session.createTextMessage("m" + i), new jakarta.jms.CompletionListener() {
                    @Override
                    public void onCompletion(Message message) {
                        completed.countDown();
                    }

                    @Override
                    public void onException(Message message, Exception fault) {
                        fault.printStackTrace();
                    }
                });
            }
            check(completed.await(WAIT, TimeUnit.MILLISECONDS), "not all sends were completed");
        });
        same(count, drain("asynchronous").size());
    }

    private void anonymous() throws Exception {
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            MessageProducer producer = session.createProducer(null);
            producer.send(queue(session, "anonymous"), session.createTextMessage("a"));
            producer.send(queue(session, "anonymous-too"), session.createTextMessage("b"));
        });
        same(List.of("a"), drain("anonymous"));
        same(List.of("b"), drain("anonymous-too"));
    }

    private void deadLetter() throws Exception {
        send("poison", "bad");
        with(Session.SESSION_TRANSACTED, session -> {
            MessageConsumer consumer = session.createConsumer(queue(session, "poison"));
            for (int delivery = 1; delivery <= 2; delivery++) {
                Message message = consumer.receive(WAIT);
                same("bad", text(message));
                same(delivery, message.getIntProperty("JMSXDeliveryCount"));
                session.rollback();
            }
        });
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            Message dead = session.createConsumer(queue(session, "poison/$DeadLetterQueue")).receive(WAIT);
            same("bad", text(dead));
            same("MaxDeliveryCountExceeded", dead.getStringProperty("DeadLetterReason"));
        });
    }

    private void automatic() throws Exception {
        send("automatic", "a", "b");
        same(List.of("a", "b"), drain("automatic"));
        same(List.of(), drain("automatic"));
    }

    private void client() throws Exception {
        send("client", "a", "b", "c", "d");
        with(Session.CLIENT_ACKNOWLEDGE, session -> {
            MessageConsumer consumer = session.createConsumer(queue(session, "client"));
            consumer.receive(WAIT);
            consumer.receive(WAIT);
            consumer.receive(WAIT).acknowledge();
            same("d", text(consumer.receive(WAIT)));
        });
        same(List.of("d"), drain("client"));
    }

    private void recover() throws Exception {
        send("recover", "a", "b");
        with(Session.CLIENT_ACKNOWLEDGE, session -> {
            MessageConsumer consumer = session.createConsumer(queue(session, "recover"));
            same("a", text(consumer.receive(WAIT)));
            same("b", text(consumer.receive(WAIT)));
            session.recover();
            Message again = consumer.receive(WAIT);
            same("a", text(again));
            same(true, again.getJMSRedelivered());
            same(2, again.getIntProperty("JMSXDeliveryCount"));
            same("b", text(consumer.receive(WAIT)));
            again.acknowledge();
        });
        same(List.of(), drain("recover"));
    }

    private void individual() throws Exception {
        send("individual", "a", "b", "c");
        with(INDIVIDUAL_ACKNOWLEDGE, session -> {
            MessageConsumer consumer = session.createConsumer(queue(session, "individual"));
            consumer.receive(WAIT);
            consumer.receive(WAIT).acknowledge();
        });
        same(List.of("a", "c"), drain("individual"));
    }

    private void prefetched() throws Exception {
        send("prefetched", "a", "b", "c");
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            MessageConsumer first = session.createConsumer(queue(session, "prefetched"));
            same("a", text(first.receive(WAIT)));
            first.close();
            MessageConsumer second = session.createConsumer(queue(session, "prefetched"));
            Message next = second.receive(WAIT);
            same("b", text(next));
            same("c", text(second.receive(WAIT)));
        });
    }

    private void expired() throws Exception {
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            MessageProducer producer = session.createProducer(queue(session, "expired"));
            producer.setTimeToLive(1);
            producer.send(session.createTextMessage("late"));
            producer.setTimeToLive(0);
            producer.send(session.createTextMessage("fresh"));
        });
        Thread.sleep(20);
        same(List.of("fresh"), drain("expired"));
    }

    private void commit() throws Exception {
        send("commit", "old");
        with(Session.SESSION_TRANSACTED, session -> {
            MessageProducer producer = session.createProducer(queue(session, "commit"));
            same("old", text(session.createConsumer(queue(session, "commit")).receive(WAIT)));
            producer.send(session.createTextMessage("new"));
            producer.send(session.createTextMessage("newer"));
            session.commit();
        });
        same(List.of("new", "newer"), drain("commit"));
    }

    private void rollback() throws Exception {
        send("rollback", "old");
        with(Session.SESSION_TRANSACTED, session -> {
            MessageProducer producer = session.createProducer(queue(session, "rollback"));
            MessageConsumer consumer = session.createConsumer(queue(session, "rollback"));
            same("old", text(consumer.receive(WAIT)));
            producer.send(session.createTextMessage("never"));
            session.rollback();
            Message again = consumer.receive(WAIT);
            same("old", text(again));
            same(2, again.getIntProperty("JMSXDeliveryCount"));
            session.commit();
        });
        same(List.of(), drain("rollback"));
    }

    private void move() throws Exception {
        send("from", "a", "b");
        with(Session.SESSION_TRANSACTED, session -> {
            MessageConsumer consumer = session.createConsumer(queue(session, "from"));
            MessageProducer producer = session.createProducer(queue(session, "to"));
            for (int i = 0; i < 2; i++) {
                producer.send(session.createTextMessage(text(consumer.receive(WAIT)) + " moved"));
                session.commit();
            }
        });
        same(List.of("a moved", "b moved"), drain("to"));
        same(List.of(), drain("from"));
    }

    private void topic() throws Exception {
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            session.createProducer(session.createTopic("topic")).send(session.createTextMessage("news"));
        });
        same(List.of("news"), drain("topic/Subscriptions/one"));
        same(List.of("news"), drain("topic/subscriptions/two"));
    }

    private void rules() throws Exception {
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            MessageProducer producer = session.createProducer(session.createTopic("ruled"));
            for (String region : new String[] {"emea", "apac"}) {
                TextMessage message = session.createTextMessage(region);
                message.setStringProperty("region", region);
                message.setJMSType("Order");
                producer.send(message);
            }
        });
        same(List.of("emea"), drain("ruled/Subscriptions/emea"));
    }

    private void group() throws Exception {
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            TextMessage message = session.createTextMessage("in a session");
            message.setStringProperty("JMSXGroupID", "blue");
            session.createProducer(queue(session, "sessions")).send(message);
        });
    }

    private void unknown() throws Exception {
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            refused(InvalidDestinationException.class, () -> session.createConsumer(queue(session, "unknown")));
            refused(InvalidDestinationException.class, () -> session.createProducer(queue(session, "unknown")));
        });
    }

    private void wrongKey() throws Exception {
        refused(JMSSecurityException.class, () -> {
            try (Connection connection = new JmsConnectionFactory(keyName, "d3Jvbmc=", url).createConnection()) {
                connection.start();
            }
        });
    }

    private void unsupported() throws Exception {
        send("unsupported", "a");
        with(Session.AUTO_ACKNOWLEDGE, session -> {
            Queue queue = queue(session, "unsupported");
            refused(JMSException.class, () -> session.createConsumer(queue, "region = 'emea'"));
            refused(JMSException.class, () -> session.createBrowser(queue).getEnumeration().hasMoreElements());
            refused(JMSException.class, session::createTemporaryQueue);
        });
        same(List.of("a"), drain("unsupported"));
    }

    private void secure() throws Exception {
        try (Connection connection = new JmsConnectionFactory(keyName, key, setting("TWINBUS_SECURE_URL")).createConnection()) {
            connection.start();
            Session session = connection.createSession(Session.SESSION_TRANSACTED);
            session.createProducer(queue(session, "secure")).send(session.createTextMessage("x".repeat(100_000)));
            session.commit();
            same(100_000, text(session.createConsumer(queue(session, "secure")).receive(WAIT)).length());
            session.commit();
        }
        same(List.of(), drain("secure"));
    }

    private void failover() throws Exception {
        String[] host = url.substring(url.lastIndexOf('/') + 1).split(":");
        try (Relay relay = new Relay(host[0], Integer.parseInt(host[1]))) {
            String address = "failover:(amqp://127.0.0.1:" + relay.port() + ")?failover.initialReconnectDelay=10";
            try (Connection connection = new JmsConnectionFactory(keyName, key, address).createConnection()) {
                connection.start();
                Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
                MessageProducer producer = session.createProducer(queue(session, "failover"));
                MessageConsumer consumer = session.createConsumer(queue(session, "failover"));
                producer.send(session.createTextMessage("before"));
                same("before", text(consumer.receive(WAIT)));
                relay.cut();
                Message again = consumer.receive(WAIT);
                same("before", text(again));
                same(true, again.getJMSRedelivered());
                producer.send(session.createTextMessage("after"));
                Message after = consumer.receive(WAIT);
                same("after", text(after));
                after.acknowledge();
            }
        }
        same(List.of(), drain("failover"));
    }
}
