package twinbus.interop;

import static twinbus.interop.Stage.bodies;
import static twinbus.interop.Stage.take;
import static twinbus.interop.Stage.takeNone;
import static twinbus.interop.Stage.takeOne;
import static twinbus.interop.Suite.equal;
import static twinbus.interop.Suite.raises;
import static twinbus.interop.Suite.scenario;
import static twinbus.interop.Suite.scenarioAlone;
import static twinbus.interop.Suite.truth;

import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.QueueRuntimeProperties;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Queues: sending, receiving, and everything that can be done with one message. */
final class MessageScenarios {
    static void add() {
        scenario("send", "a message arrives with everything it was sent with", s -> {
            String queue = s.queue();
            ServiceBusMessage sent = new ServiceBusMessage("größer").setMessageId("m-1").setCorrelationId("c-1")
                .setContentType("text/plain").setSubject("subject").setTo("to").setReplyTo("reply")
                .setReplyToSessionId("reply-session").setPartitionKey("key").setTimeToLive(Duration.ofMinutes(10));
            Map<String, Object> properties = Map.of("text", "t", "whole", 7L, "small", -7, "ratio", 1.5, "yes", true,
                "when", OffsetDateTime.parse("2026-01-02T03:04:05.678Z"));
            sent.getApplicationProperties().putAll(properties);
            OffsetDateTime before = OffsetDateTime.now();
            s.sender(queue).sendMessage(sent);
            ServiceBusReceiverClient receiver = s.receiver(queue);
            ServiceBusReceivedMessage got = takeOne(receiver);
            equal("größer", got.getBody().toString());
            equal("m-1", got.getMessageId());
            equal("c-1", got.getCorrelationId());
            equal("text/plain", got.getContentType());
            equal("subject", got.getSubject());
            equal("to", got.getTo());
            equal("reply", got.getReplyTo());
            equal("reply-session", got.getReplyToSessionId());
            equal("key", got.getPartitionKey());
            equal(Duration.ofMinutes(10), got.getTimeToLive());
            for (String name : properties.keySet()) {
                Object value = got.getApplicationProperties().get(name);
                if (name.equals("when")) {
                    continue; // the SDK reads a timestamp as a Date
                }
                equal(properties.get(name), value);
            }
            equal(0, got.getDeliveryCount());
            equal(1, got.getSequenceNumber());
            equal(ServiceBusMessageState.ACTIVE, got.getState());
            truth(got.getEnqueuedTime().isAfter(before.minusSeconds(1)), "enqueued before it was sent");
            truth(got.getLockedUntil().isAfter(before.plusSeconds(50)), "locked for less than a minute");
            equal(got.getEnqueuedTime().plusMinutes(10), got.getExpiresAt());
            receiver.complete(got);
            takeNone(receiver);
        });

        scenario("send", "AMQP bodies of every kind arrive as they were", s -> {
            String queue = s.queue();
            ServiceBusSenderClient sender = s.sender(queue);
            sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromData(new byte[] {0, 1, (byte) 255})));
            sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromValue("text")));
            sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromSequence(List.of(1L, "two"))));
            ServiceBusMessage urgent = new ServiceBusMessage("urgent");
            urgent.getRawAmqpMessage().getHeader().setPriority((short) 7);
            sender.sendMessage(urgent);
            List<ServiceBusReceivedMessage> got = take(s.receiver(queue), 4);
            equal(new byte[] {0, 1, (byte) 255}, got.get(0).getBody().toBytes());
            equal(AmqpMessageBodyType.VALUE, got.get(1).getRawAmqpMessage().getBody().getBodyType());
            equal("text", got.get(1).getRawAmqpMessage().getBody().getValue());
            equal(List.of(1L, "two"), got.get(2).getRawAmqpMessage().getBody().getSequence());
            equal(7, got.get(3).getRawAmqpMessage().getHeader().getPriority());
        });

        scenario("send", "a message over the limit is refused as too large", s -> {
            String queue = s.queue();
            ServiceBusSenderClient sender = s.sender(queue);
            ServiceBusException refused = raises(ServiceBusException.class,
                x -> sender.sendMessage(new ServiceBusMessage(BinaryData.fromBytes(new byte[2 * 1024 * 1024]))));
            equal(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED, refused.getReason());
            sender.sendMessage(new ServiceBusMessage("small"));
        });

        scenario("batch", "a batch that is filled until the SDK calls it full arrives whole", s -> {
            String queue = s.queue();
            ServiceBusSenderClient sender = s.sender(queue);
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            ServiceBusMessage message = new ServiceBusMessage(BinaryData.fromBytes(new byte[1000]));
            message.getApplicationProperties().put("number", 1L);
            int count = 0;
            while (batch.tryAddMessage(message)) {
                count++;
            }
            truth(count > 100, "full with " + count + " messages");
            equal(count, batch.getCount());
            sender.sendMessages(batch);
            equal(count, s.administration().getQueueRuntimeProperties(queue).getActiveMessageCount());
            take(s.taker(queue), count);
        });

        scenario("batch", "a batch of one key goes to a partitioned queue in order", s -> {
            String queue = s.queue(new CreateQueueOptions().setPartitioningEnabled(true));
            List<ServiceBusMessage> messages = new ArrayList<>();
            List<String> wanted = new ArrayList<>();
            for (int number = 0; number < 20; number++) {
                wanted.add(String.valueOf(number));
                messages.add(new ServiceBusMessage(wanted.get(number)).setPartitionKey("key"));
            }
            s.sender(queue).sendMessages(messages);
            List<ServiceBusReceivedMessage> got = take(s.receiver(queue), wanted.size());
            equal(wanted, bodies(got));
            Set<Long> fragments = new HashSet<>();
            got.forEach(each -> fragments.add(each.getSequenceNumber() >> 48));
            equal(1, fragments.size());
        });

        scenario("partitioned entities", "messages without a key reach all fragments and come back", s -> {
            String queue = s.queue(new CreateQueueOptions().setPartitioningEnabled(true));
            ServiceBusSenderClient sender = s.sender(queue);
            for (int number = 0; number < 32; number++) {
                sender.sendMessage(new ServiceBusMessage(String.valueOf(number)));
            }
            Set<Long> fragments = new HashSet<>();
            Set<String> seen = new HashSet<>();
            ServiceBusReceiverClient receiver = s.receiver(queue);
            for (ServiceBusReceivedMessage message : take(receiver, 32)) {
                fragments.add(message.getSequenceNumber() >> 48);
                seen.add(message.getBody().toString());
                receiver.complete(message);
            }
            equal(16, fragments.size());
            equal(32, seen.size());
        });

        scenario("receive", "receive and delete takes messages at once", s -> {
            String queue = s.queue();
            s.send(queue, "one", "two", "three");
            equal(List.of("one", "two", "three"), bodies(take(s.taker(queue), 3)));
            equal(0, s.administration().getQueueRuntimeProperties(queue).getTotalMessageCount());
        });

        scenario("receive", "peeking pages through everything and locks nothing", s -> {
            String queue = s.queue();
            s.send(queue, "one", "two", "three");
            ServiceBusReceiverClient receiver = s.receiver(queue);
            equal(List.of("one", "two"), bodies(receiver.peekMessages(2)));
            equal(List.of("three"), bodies(receiver.peekMessages(2)));
            equal(List.of(), bodies(receiver.peekMessages(2)));
            equal(List.of("two", "three"), bodies(receiver.peekMessages(9, 2)));
            equal("one", receiver.peekMessage(1).getBody().toString());
            equal(3, take(receiver, 3).size());
        });

        scenarioAlone("receive", "prefetched messages that were not used come again when their locks end", s -> {
            String queue = s.queue();
            s.send(queue, "1", "2", "3", "4", "5");
            ServiceBusReceiverClient first = s.newBuilder().receiver().queueName(queue).prefetchCount(5).disableAutoComplete().buildClient();
            ServiceBusReceivedMessage got = takeOne(first);
            equal("1", got.getBody().toString());
            first.complete(got);
            first.close();
            s.passTime(61);
            equal(List.of("2", "3", "4", "5"), bodies(take(s.receiver(queue), 4)));
        });

        scenario("settlement", "an abandoned message comes again with its changes and its count", s -> {
            String queue = s.queue();
            s.send(queue, "again");
            ServiceBusReceiverClient receiver = s.receiver(queue);
            receiver.abandon(takeOne(receiver), new AbandonOptions().setPropertiesToModify(Map.of("attempt", "second")));
            ServiceBusReceivedMessage second = takeOne(receiver);
            equal(1, second.getDeliveryCount());
            equal("second", second.getApplicationProperties().get("attempt"));
            receiver.complete(second);
            takeNone(receiver);
        });

        scenario("settlement", "a message is settled once", s -> {
            String queue = s.queue();
            s.send(queue, "once");
            ServiceBusReceiverClient receiver = s.receiver(queue);
            ServiceBusReceivedMessage message = takeOne(receiver);
            receiver.complete(message);
            raises(RuntimeException.class, x -> receiver.complete(message));
        });

        scenario("lock renewal", "a renewed lock ends later", s -> {
            String queue = s.queue(new CreateQueueOptions().setLockDuration(Duration.ofSeconds(10)));
            s.send(queue, "held");
            ServiceBusReceiverClient receiver = s.receiver(queue);
            ServiceBusReceivedMessage message = takeOne(receiver);
            Thread.sleep(20);
            truth(receiver.renewMessageLock(message).isAfter(message.getLockedUntil()), "the lock does not end later");
            receiver.complete(message);
        });

        scenarioAlone("lock renewal", "a lock that ended is lost, and the message comes again", s -> {
            String queue = s.queue(new CreateQueueOptions().setLockDuration(Duration.ofSeconds(10)));
            s.send(queue, "lost");
            ServiceBusReceiverClient receiver = s.receiver(queue);
            ServiceBusReceivedMessage message = takeOne(receiver);
            s.passTime(11);
            equal(ServiceBusFailureReason.MESSAGE_LOCK_LOST,
                raises(ServiceBusException.class, x -> receiver.renewMessageLock(message)).getReason());
            equal(ServiceBusFailureReason.MESSAGE_LOCK_LOST,
                raises(ServiceBusException.class, x -> receiver.complete(message)).getReason());
            ServiceBusReceivedMessage again = takeOne(receiver);
            equal(1, again.getDeliveryCount());
            receiver.complete(again);
        });

        scenario("dead-letter", "a message is dead-lettered with a reason and received there", s -> {
            String queue = s.queue();
            s.send(queue, "bad");
            ServiceBusReceiverClient receiver = s.receiver(queue);
            receiver.deadLetter(takeOne(receiver), new DeadLetterOptions().setDeadLetterReason("reason")
                .setDeadLetterErrorDescription("description").setPropertiesToModify(Map.of("seen", true)));
            ServiceBusReceiverClient dead = s.deadLetters(queue);
            ServiceBusReceivedMessage message = takeOne(dead);
            equal("reason", message.getDeadLetterReason());
            equal("description", message.getDeadLetterErrorDescription());
            equal(true, message.getApplicationProperties().get("seen"));
            dead.complete(message);
            equal(0, s.administration().getQueueRuntimeProperties(queue).getDeadLetterMessageCount());
        });

        scenario("dead-letter", "too many deliveries dead-letter a message", s -> {
            String queue = s.queue(new CreateQueueOptions().setMaxDeliveryCount(2));
            s.send(queue, "stubborn");
            ServiceBusReceiverClient receiver = s.receiver(queue);
            receiver.abandon(takeOne(receiver));
            receiver.abandon(takeOne(receiver));
            equal("MaxDeliveryCountExceeded", takeOne(s.deadLetters(queue)).getDeadLetterReason());
        });

        scenarioAlone("dead-letter", "an expired message is dead-lettered where the queue says so", s -> {
            String queue = s.queue(new CreateQueueOptions().setDeadLetteringOnMessageExpiration(true));
            s.sender(queue).sendMessage(new ServiceBusMessage("old").setTimeToLive(Duration.ofMinutes(1)));
            s.passTime(61);
            equal("TTLExpiredException", takeOne(s.deadLetters(queue)).getDeadLetterReason());
        });

        scenario("deferral", "a deferred message is received by its number", s -> {
            String queue = s.queue();
            s.send(queue, "later", "now");
            ServiceBusReceiverClient receiver = s.receiver(queue);
            List<ServiceBusReceivedMessage> got = take(receiver, 2);
            receiver.defer(got.get(0), new DeferOptions().setPropertiesToModify(Map.of("why", "later")));
            receiver.complete(got.get(1));
            equal(ServiceBusMessageState.DEFERRED, receiver.peekMessage(1).getState());
            ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(got.get(0).getSequenceNumber());
            equal("later", deferred.getBody().toString());
            equal("later", deferred.getApplicationProperties().get("why"));
            receiver.complete(deferred);
            raises(ServiceBusException.class, x -> receiver.receiveDeferredMessage(got.get(0).getSequenceNumber()));
        });

        scenario("duplicate detection", "a message id counts once", s -> {
            String queue = s.queue(new CreateQueueOptions().setDuplicateDetectionRequired(true));
            ServiceBusSenderClient sender = s.sender(queue);
            for (String id : List.of("a", "b", "a")) {
                sender.sendMessage(new ServiceBusMessage(id).setMessageId(id));
            }
            ServiceBusReceiverClient receiver = s.receiver(queue);
            equal(List.of("a", "b"), bodies(take(receiver, 2)));
            takeNone(receiver);
        });

        scenarioAlone("scheduling", "scheduled messages come when they are due, and cancelled ones never", s -> {
            String queue = s.queue();
            ServiceBusSenderClient sender = s.sender(queue);
            ServiceBusReceiverClient receiver = s.receiver(queue);
            OffsetDateTime due = OffsetDateTime.now().plusSeconds(200);
            List<Long> numbers = new ArrayList<>();
            numbers.add(sender.scheduleMessage(new ServiceBusMessage("one"), due));
            sender.scheduleMessages(List.of(new ServiceBusMessage("two"), new ServiceBusMessage("three"),
                new ServiceBusMessage("four")), due).forEach(numbers::add);
            equal(4, numbers.size());
            equal(ServiceBusMessageState.SCHEDULED, receiver.peekMessage().getState());
            QueueRuntimeProperties shown = s.administration().getQueueRuntimeProperties(queue);
            equal(List.of(4, 0), List.of(shown.getScheduledMessageCount(), shown.getActiveMessageCount()));
            sender.cancelScheduledMessage(numbers.get(1));
            sender.cancelScheduledMessages(numbers.subList(2, 4));
            s.passTime(120);
            s.passTime(120);
            ServiceBusReceivedMessage got = takeOne(receiver);
            equal("one", got.getBody().toString());
            truth(Duration.between(due, got.getScheduledEnqueueTime()).abs().toMillis() < 1000, "it was due at another time");
            takeNone(receiver);
        });

        scenario("scheduling", "a message with an enqueue time of its own waits for it", s -> {
            String queue = s.queue();
            OffsetDateTime due = OffsetDateTime.now().plusNanos(700_000_000);
            s.sender(queue).sendMessage(new ServiceBusMessage("later").setScheduledEnqueueTime(due));
            takeOne(s.receiver(queue));
            truth(!OffsetDateTime.now().isBefore(due), "it came before it was due");
        });
    }

    private MessageScenarios() {
    }
}
