package twinbus.interop;

import static twinbus.interop.Stage.bodies;
import static twinbus.interop.Stage.fresh;
import static twinbus.interop.Stage.inSession;
import static twinbus.interop.Stage.take;
import static twinbus.interop.Stage.takeOne;
import static twinbus.interop.Suite.equal;
import static twinbus.interop.Suite.raises;
import static twinbus.interop.Suite.scenario;
import static twinbus.interop.Suite.scenarioAlone;
import static twinbus.interop.Suite.truth;

import com.azure.core.amqp.AmqpTransportType;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.models.AccessRights;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.SharedAccessAuthorizationRule;
import com.azure.messaging.servicebus.models.SubQueue;
import java.util.List;

/** Transports, lost connections and refusals. */
final class ConnectionScenarios {
    /** A bit of everything, for a transport of its own. */
    private static void aDay(Stage s, ServiceBusClientBuilder builder) {
        String queue = s.queue();
        String sessions = s.sessionQueue();
        ServiceBusSenderClient sender = s.closing(builder.sender().queueName(queue).buildClient());
        sender.sendMessages(List.of(new ServiceBusMessage("one"), new ServiceBusMessage("two")));
        ServiceBusReceiverClient receiver = s.closing(builder.receiver().queueName(queue).disableAutoComplete().buildClient());
        List<ServiceBusReceivedMessage> got = take(receiver, 2);
        equal(List.of("one", "two"), bodies(got));
        receiver.renewMessageLock(got.get(0));
        receiver.complete(got.get(0));
        receiver.deadLetter(got.get(1));
        ServiceBusReceiverClient dead = s.closing(
            builder.receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient());
        equal("two", takeOne(dead).getBody().toString());
        String large = "x".repeat(200_000);
        sender.sendMessage(new ServiceBusMessage(large));
        equal(large, takeOne(receiver).getBody().toString());
        s.closing(builder.sender().queueName(sessions).buildClient()).sendMessage(inSession("a", "1"));
        ServiceBusReceiverClient session = s.closing(
            s.closing(builder.sessionReceiver().queueName(sessions).buildClient()).acceptNextSession());
        session.setSessionState(new byte[] {1});
        equal("1", takeOne(session).getBody().toString());
    }

    static void add() {
        scenario("TLS", "AMQP and administration over TLS, with the certificate verified",
            s -> aDay(s, s.tlsBuilder(AmqpTransportType.AMQP)));

        scenario("WebSockets", "AMQP over WebSockets with TLS", s -> aDay(s, s.tlsBuilder(AmqpTransportType.AMQP_WEB_SOCKETS)));

        // Where the string says that it is an emulator's, the SDK asks for TLS all the same, and trusts anybody.
        scenario("WebSockets", "AMQP over WebSockets at the port of the connection string for emulators",
            s -> aDay(s, s.newBuilder().transportType(AmqpTransportType.AMQP_WEB_SOCKETS)));

        scenarioAlone("reconnect", "sender and receiver go on after the namespace was restarted", s -> {
            String queue = s.queue();
            ServiceBusClientBuilder builder = s.newBuilder().retryOptions(Stage.RETRIES);
            ServiceBusSenderClient sender = s.closing(builder.sender().queueName(queue).buildClient());
            ServiceBusReceiverClient receiver = s.closing(builder.receiver().queueName(queue).disableAutoComplete().buildClient());
            sender.sendMessage(new ServiceBusMessage("before"));
            takeOne(receiver);
            sender.sendMessage(new ServiceBusMessage("kept"));
            s.restart();
            sender.sendMessage(new ServiceBusMessage("after"));
            List<ServiceBusReceivedMessage> got = take(receiver, 3);
            equal(List.of("before", "kept", "after"), bodies(got));
            got.forEach(receiver::complete);
            equal(0, s.administration().getQueueRuntimeProperties(queue).getTotalMessageCount());
        });

        scenario("errors", "an entity that does not exist is not found", s -> {
            equal(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, raises(ServiceBusException.class,
                x -> s.sender(fresh("nothing")).sendMessage(new ServiceBusMessage("lost"))).getReason());
            equal(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND,
                raises(ServiceBusException.class, x -> s.receiver(fresh("nothing")).peekMessage()).getReason());
        });

        scenario("errors", "a wrong key is unauthorized", s -> {
            String forged = s.plain().replace("SharedAccessKey=", "SharedAccessKey=x");
            String queue = s.queue();
            ServiceBusSenderClient sender = s.closing(s.newBuilder().connectionString(forged).sender().queueName(queue).buildClient());
            equal(ServiceBusFailureReason.UNAUTHORIZED,
                raises(ServiceBusException.class, x -> sender.sendMessage(new ServiceBusMessage("forged"))).getReason());
        });

        scenario("errors", "a key may do what its rights say", s -> {
            String key = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U=";
            CreateQueueOptions options = new CreateQueueOptions();
            options.getAuthorizationRules().add(new SharedAccessAuthorizationRule("listener", key, "b3RoZXJvdGhlcm90aGVyb3RoZXJvdGhlcm90aGVyb3Q=", List.of(AccessRights.LISTEN)));
            String queue = s.queue(options);
            s.send(queue, "for the listener");
            String endpoint = s.plain().substring(0, s.plain().indexOf(';'));
            ServiceBusClientBuilder builder = s.newBuilder().connectionString(
                endpoint + ";SharedAccessKeyName=listener;SharedAccessKey=" + key + ";UseDevelopmentEmulator=true");
            equal("for the listener", takeOne(s.closing(builder.receiver().queueName(queue).buildClient())).getBody().toString());
            ServiceBusSenderClient sender = s.closing(builder.sender().queueName(queue).buildClient());
            equal(ServiceBusFailureReason.UNAUTHORIZED,
                raises(ServiceBusException.class, x -> sender.sendMessage(new ServiceBusMessage("no"))).getReason());
        });

        scenario("errors", "a disabled queue takes nothing", s -> {
            String queue = s.queue();
            ServiceBusSenderClient sender = s.sender(queue);
            sender.sendMessage(new ServiceBusMessage("before"));
            s.administration().updateQueue(s.administration().getQueue(queue).setStatus(EntityStatus.DISABLED));
            ServiceBusException refused = raises(ServiceBusException.class, x -> sender.sendMessage(new ServiceBusMessage("disabled")));
            equal(ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED, refused.getReason());
            truth(s.administration().getQueueRuntimeProperties(queue).getActiveMessageCount() == 1, "it took a message");
        });
    }

    private ConnectionScenarios() {
    }
}
