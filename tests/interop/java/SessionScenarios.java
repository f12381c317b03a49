package twinbus.interop;

import static twinbus.interop.Stage.bodies;
import static twinbus.interop.Stage.inSession;
import static twinbus.interop.Stage.take;
import static twinbus.interop.Stage.takeNone;
import static twinbus.interop.Stage.takeOne;
import static twinbus.interop.Suite.equal;
import static twinbus.interop.Suite.raises;
import static twinbus.interop.Suite.scenario;
import static twinbus.interop.Suite.scenarioAlone;
import static twinbus.interop.Suite.truth;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import java.nio.charset.StandardCharsets;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Message sessions. */
final class SessionScenarios {
    static void add() {
        scenario("sessions", "a session is taken by its name and received in order", s -> {
            String queue = s.sessionQueue();
            s.sender(queue).sendMessages(List.of(inSession("a", "1"), inSession("b", "other"), inSession("a", "2"), inSession("a", "3")));
            ServiceBusReceiverClient session = s.session(queue, "a");
            equal("a", session.getSessionId());
            List<ServiceBusReceivedMessage> got = take(session, 3);
            equal(List.of("1", "2", "3"), bodies(got));
            equal("a", got.get(0).getSessionId());
            got.forEach(session::complete);
            takeNone(session);
        });

        scenario("sessions", "the next session is any that is free", s -> {
            String queue = s.sessionQueue();
            s.sender(queue).sendMessages(List.of(inSession("a", "1"), inSession("b", "2")));
            ServiceBusSessionReceiverClient sessions = s.sessions(queue);
            ServiceBusReceiverClient first = s.closing(sessions.acceptNextSession());
            ServiceBusReceiverClient second = s.closing(sessions.acceptNextSession());
            equal(Set.of("a", "b"), Set.of(first.getSessionId(), second.getSessionId()));
        });

        scenario("sessions", "a session that another receiver holds cannot be taken", s -> {
            String queue = s.sessionQueue();
            ServiceBusReceiverClient held = s.sessions(queue).acceptSession("a");
            ServiceBusSessionReceiverClient other = s.closing(s.newBuilder().sessionReceiver().queueName(queue).buildClient());
            AmqpException refused = raises(AmqpException.class, x -> other.acceptSession("a"));
            equal(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, refused.getErrorCondition());
            held.close();
            s.closing(other.acceptSession("a"));
        });

        scenario("sessions", "a waiting receiver gets the session that comes", s -> {
            String queue = s.sessionQueue();
            ServiceBusSessionReceiverClient sessions = s.sessions(queue);
            CompletableFuture<String> came = CompletableFuture.supplyAsync(() -> s.closing(sessions.acceptNextSession()).getSessionId());
            Thread.sleep(200);
            s.sender(queue).sendMessage(inSession("late", "1"));
            equal("late", came.get(60, TimeUnit.SECONDS));
        });

        scenario("sessions", "session state is kept and cleared", s -> {
            String queue = s.sessionQueue();
            ServiceBusReceiverClient session = s.sessions(queue).acceptSession("a");
            equal(null, session.getSessionState());
            session.setSessionState("half way".getBytes(StandardCharsets.UTF_8));
            session.close();
            // On another connection: the SDK may hand out the link that it is about to close, as it names both after the session.
            ServiceBusReceiverClient again = s.closing(
                s.closing(s.newBuilder().sessionReceiver().queueName(queue).buildClient()).acceptSession("a"));
            equal("half way", new String(again.getSessionState(), StandardCharsets.UTF_8));
            again.setSessionState(null);
            equal(null, again.getSessionState());
        });

        scenario("lock renewal", "a renewed session lock ends later", s -> {
            String queue = s.sessionQueue();
            ServiceBusReceiverClient session = s.session(queue, "a");
            OffsetDateTime first = session.renewSessionLock();
            Thread.sleep(20);
            truth(session.renewSessionLock().isAfter(first), "the lock does not end later");
        });

        scenario("deferral", "deferring, dead-lettering and peeking work within a session", s -> {
            String queue = s.sessionQueue();
            s.sender(queue).sendMessages(List.of(inSession("a", "defer"), inSession("a", "bury"), inSession("a", "abandon"), inSession("b", "other")));
            ServiceBusReceiverClient session = s.session(queue, "a");
            equal(List.of("defer", "bury", "abandon"), bodies(session.peekMessages(9)));
            List<ServiceBusReceivedMessage> got = take(session, 3);
            session.defer(got.get(0));
            session.deadLetter(got.get(1));
            session.abandon(got.get(2));
            equal("abandon", takeOne(session).getBody().toString());
            ServiceBusReceivedMessage deferred = session.receiveDeferredMessage(got.get(0).getSequenceNumber());
            equal("defer", deferred.getBody().toString());
            session.complete(deferred);
            equal("bury", takeOne(s.deadLetters(queue)).getBody().toString());
        });

        scenario("sessions", "sessions of a subscription are taken", s -> {
            String topic = s.topic();
            s.administration().createSubscription(topic, "sub", new CreateSubscriptionOptions().setSessionRequired(true));
            s.topicSender(topic).sendMessage(inSession("a", "1"));
            ServiceBusSessionReceiverClient sessions = s.closing(
                s.builder().sessionReceiver().topicName(topic).subscriptionName("sub").buildClient());
            equal("1", takeOne(s.closing(sessions.acceptNextSession())).getBody().toString());
        });

        scenario("sessions", "a message without a session is refused where sessions are required", s -> {
            String queue = s.sessionQueue();
            raises(RuntimeException.class, x -> s.sender(queue).sendMessage(new ServiceBusMessage("homeless")));
        });

        scenarioAlone("sessions", "a session lock that ended is lost, and its messages come again", s -> {
            String queue = s.sessionQueue();
            s.sender(queue).sendMessage(inSession("a", "1"));
            ServiceBusReceiverClient session = s.session(queue, "a");
            ServiceBusReceivedMessage message = takeOne(session);
            s.passTime(61);
            ServiceBusException lost = raises(ServiceBusException.class, x -> session.complete(message));
            equal(ServiceBusFailureReason.SESSION_LOCK_LOST, lost.getReason());
            ServiceBusReceiverClient again = s.closing(
                s.closing(s.newBuilder().sessionReceiver().queueName(queue).disableAutoComplete().buildClient()).acceptSession("a"));
            ServiceBusReceivedMessage got = takeOne(again);
            equal(1, got.getDeliveryCount());
            again.complete(got);
        });
    }

    private SessionScenarios() {
    }
}
