package twinbus.interop;

import static twinbus.interop.Stage.bodies;
import static twinbus.interop.Stage.take;
import static twinbus.interop.Stage.takeNone;
import static twinbus.interop.Stage.takeOne;
import static twinbus.interop.Suite.equal;
import static twinbus.interop.Suite.raises;
import static twinbus.interop.Suite.scenario;
import static twinbus.interop.Suite.scenarioAlone;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Set;

/** Transactions, in one entity and across several. */
final class TransactionScenarios {
    private static CompleteOptions complete(ServiceBusTransactionContext transaction) {
        return new CompleteOptions().setTransactionContext(transaction);
    }

    static void add() {
        scenario("transactions", "what is sent in a transaction comes with its commit", s -> {
            String queue = s.queue();
            ServiceBusSenderClient sender = s.sender(queue);
            ServiceBusReceiverClient receiver = s.receiver(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("one"), transaction);
            sender.sendMessages(List.of(new ServiceBusMessage("two"), new ServiceBusMessage("three")), transaction);
            takeNone(receiver);
            sender.commitTransaction(transaction);
            // As a set: the SDK gives back what reaches it just after a receive has ended, and that comes again behind the others.
            equal(Set.of("one", "two", "three"), Set.copyOf(bodies(take(receiver, 3))));
        });

        scenarioAlone("transactions", "a rollback leaves nothing of what was sent and everything that was received", s -> {
            String queue = s.queue();
            s.send(queue, "kept");
            ServiceBusSenderClient sender = s.sender(queue);
            ServiceBusReceiverClient receiver = s.receiver(queue);
            ServiceBusReceivedMessage message = takeOne(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(message, complete(transaction));
            sender.sendMessage(new ServiceBusMessage("never"), transaction);
            receiver.rollbackTransaction(transaction);
            s.passTime(61); // the SDK settles a message once only, so its lock has to end
            equal("kept", takeOne(receiver).getBody().toString());
            equal(1, s.administration().getQueueRuntimeProperties(queue).getTotalMessageCount());
        });

        scenario("transactions", "every way to settle takes part in a transaction", s -> {
            String queue = s.queue();
            s.send(queue, "complete", "abandon", "defer", "bury");
            ServiceBusReceiverClient receiver = s.receiver(queue);
            List<ServiceBusReceivedMessage> got = take(receiver, 4);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(got.get(0), complete(transaction));
            receiver.abandon(got.get(1), new AbandonOptions().setTransactionContext(transaction));
            receiver.defer(got.get(2), new DeferOptions().setTransactionContext(transaction));
            receiver.deadLetter(got.get(3), new DeadLetterOptions().setTransactionContext(transaction));
            equal(4, s.administration().getQueueRuntimeProperties(queue).getActiveMessageCount());
            receiver.commitTransaction(transaction);
            equal("abandon", takeOne(receiver).getBody().toString());
            equal("defer", receiver.receiveDeferredMessage(got.get(2).getSequenceNumber()).getBody().toString());
            equal("bury", takeOne(s.deadLetters(queue)).getBody().toString());
        });

        scenario("transactions", "a message is scheduled in a transaction", s -> {
            String queue = s.queue();
            ServiceBusSenderClient sender = s.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            OffsetDateTime due = OffsetDateTime.now().plusHours(1);
            sender.scheduleMessage(new ServiceBusMessage("later"), due, transaction);
            equal(0, s.administration().getQueueRuntimeProperties(queue).getScheduledMessageCount());
            sender.commitTransaction(transaction);
            equal(1, s.administration().getQueueRuntimeProperties(queue).getScheduledMessageCount());
            ServiceBusTransactionContext undone = sender.createTransaction();
            sender.scheduleMessage(new ServiceBusMessage("never"), due, undone);
            sender.rollbackTransaction(undone);
            equal(1, s.administration().getQueueRuntimeProperties(queue).getScheduledMessageCount());
        });

        scenario("transactions", "messages of one key are sent to a partitioned queue in a transaction", s -> {
            String queue = s.queue(new CreateQueueOptions().setPartitioningEnabled(true));
            ServiceBusSenderClient sender = s.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            for (String body : List.of("1", "2", "3")) {
                sender.sendMessage(new ServiceBusMessage(body).setPartitionKey("key"), transaction);
            }
            sender.commitTransaction(transaction);
            equal(List.of("1", "2", "3"), bodies(take(s.receiver(queue), 3)));
        });

        scenario("transactions", "nothing is sent in a transaction that ended", s -> {
            String queue = s.queue();
            ServiceBusSenderClient sender = s.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("one"), transaction);
            sender.commitTransaction(transaction);
            try {
                sender.sendMessage(new ServiceBusMessage("two"), transaction);
            } catch (RuntimeException refused) {
                // 7.17 does not tell the application; others may.
            }
            equal(List.of("one"), bodies(s.receiver(queue).peekMessages(9)));
            raises(RuntimeException.class, x -> sender.commitTransaction(transaction));
        });

        scenarioAlone("transactions", "a cross-entity transaction receives here and sends there", s -> {
            String source = s.queue();
            String target = s.queue();
            String topic = s.topic("sub");
            s.send(source, "order", "rolled back");
            ServiceBusClientBuilder builder = s.newBuilder().enableCrossEntityTransactions();
            ServiceBusReceiverClient receiver = s.closing(builder.receiver().queueName(source).disableAutoComplete().buildClient());
            ServiceBusSenderClient toQueue = s.closing(builder.sender().queueName(target).buildClient());
            ServiceBusSenderClient toTopic = s.closing(builder.sender().topicName(topic).buildClient());
            List<ServiceBusReceivedMessage> got = take(receiver, 2);

            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(got.get(0), complete(transaction));
            toQueue.sendMessage(new ServiceBusMessage("invoice"), transaction);
            toTopic.sendMessage(new ServiceBusMessage("event"), transaction);
            takeNone(s.receiver(target));
            receiver.commitTransaction(transaction);
            equal("invoice", takeOne(s.taker(target)).getBody().toString());
            equal("event", takeOne(s.subscription(topic, "sub")).getBody().toString());

            ServiceBusTransactionContext undone = receiver.createTransaction();
            receiver.complete(got.get(1), complete(undone));
            toQueue.sendMessage(new ServiceBusMessage("never"), undone);
            receiver.rollbackTransaction(undone);
            s.passTime(61);
            equal("rolled back", takeOne(s.receiver(source)).getBody().toString());
            takeNone(s.receiver(target));
        });
    }

    private TransactionScenarios() {
    }
}
