package twinbus.interop;

import static twinbus.interop.Stage.inSession;
import static twinbus.interop.Stage.takeOne;
import static twinbus.interop.Suite.equal;
import static twinbus.interop.Suite.scenario;
import static twinbus.interop.Suite.scenarioAlone;
import static twinbus.interop.Suite.truth;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessageContext;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Processors: messages that the SDK receives and settles in the background. */
final class ProcessorScenarios {
    /** Waits for longer than a lock lasts: what a processor is handed while it stops comes again only after that. */
    private static String next(BlockingQueue<String> seen) throws InterruptedException {
        String body = seen.poll(90, TimeUnit.SECONDS);
        truth(body != null, "no message came in time");
        return body;
    }

    private static void waitForEmpty(Stage s, String queue) throws InterruptedException {
        for (int tries = 0; tries < 1200; tries++) {
            if (s.administration().getQueueRuntimeProperties(queue).getTotalMessageCount() == 0) {
                return;
            }
            Thread.sleep(50);
        }
        throw new AssertionError("the processor did not complete its messages");
    }

    static void add() {
        scenario("processor", "messages are processed and completed", s -> {
            String queue = s.queue();
            BlockingQueue<String> seen = new LinkedBlockingQueue<>();
            List<Throwable> errors = new ArrayList<>();
            ServiceBusProcessorClient processor = s.closing(s.builder().processor().queueName(queue).maxConcurrentCalls(2)
                .processMessage(context -> seen.add(context.getMessage().getBody().toString()))
                .processError(context -> errors.add(context.getException())).buildProcessorClient());
            processor.start();
            s.send(queue, "1", "2", "3");
            equal(List.of("1", "2", "3"), List.of(next(seen), next(seen), next(seen)).stream().sorted().toList());
            waitForEmpty(s, queue);
            processor.stop();
            s.send(queue, "while stopped");
            processor.start();
            equal("while stopped", next(seen));
            equal(List.of(), errors);
        });

        scenario("processor", "a message whose processing fails comes again and is dead-lettered in the end", s -> {
            String queue = s.queue(new CreateQueueOptions().setMaxDeliveryCount(2));
            BlockingQueue<String> seen = new LinkedBlockingQueue<>();
            BlockingQueue<String> errors = new LinkedBlockingQueue<>();
            ServiceBusProcessorClient processor = s.closing(s.builder().processor().queueName(queue).processMessage(context -> {
                seen.add(context.getMessage().getBody().toString());
                throw new IllegalStateException("cannot process it");
            }).processError(context -> errors.add(context.getErrorSource().toString())).buildProcessorClient());
            processor.start();
            s.send(queue, "poison");
            next(seen);
            next(seen);
            equal("MaxDeliveryCountExceeded", takeOne(s.deadLetters(queue)).getDeadLetterReason());
            equal("USER_CALLBACK", errors.poll(60, TimeUnit.SECONDS));
        });

        scenario("processor", "messages are settled by hand", s -> {
            String queue = s.queue();
            BlockingQueue<String> seen = new LinkedBlockingQueue<>();
            ServiceBusProcessorClient processor = s.closing(s.builder().processor().queueName(queue).disableAutoComplete()
                .processMessage((ServiceBusReceivedMessageContext context) -> {
                    seen.add(context.getMessage().getBody() + " " + context.getMessage().getDeliveryCount());
                    switch (context.getMessage().getBody().toString()) {
                        case "bury" -> context.deadLetter();
                        case "defer" -> context.defer();
                        default -> {
                            if (context.getMessage().getDeliveryCount() == 0) {
                                context.abandon();
                            } else {
                                context.complete();
                            }
                        }
                    }
                }).processError(context -> {
                }).buildProcessorClient());
            processor.start();
            s.send(queue, "again", "bury", "defer");
            List<String> four = List.of(next(seen), next(seen), next(seen), next(seen));
            equal(List.of("again 0", "again 1", "bury 0", "defer 0"), four.stream().sorted().toList());
            equal("bury", takeOne(s.deadLetters(queue)).getBody().toString());
        });

        scenario("processor", "a session processor keeps the order of every session", s -> {
            String queue = s.sessionQueue();
            List<ServiceBusMessage> messages = new ArrayList<>();
            for (int number = 0; number < 10; number++) {
                for (String session : List.of("a", "b", "c")) {
                    messages.add(inSession(session, String.valueOf(number)));
                }
            }
            s.sender(queue).sendMessages(messages);
            Map<String, List<String>> bySession = new ConcurrentHashMap<>();
            BlockingQueue<String> seen = new LinkedBlockingQueue<>();
            ServiceBusProcessorClient processor = s.closing(s.builder().sessionProcessor().queueName(queue).maxConcurrentSessions(2)
                .sessionIdleTimeout(Duration.ofSeconds(1)).processMessage(context -> {
                    String body = context.getMessage().getBody().toString();
                    bySession.computeIfAbsent(context.getMessage().getSessionId(), session -> new ArrayList<>()).add(body);
                    seen.add(body);
                }).processError(context -> {
                }).buildProcessorClient());
            processor.start();
            for (int count = 0; count < messages.size(); count++) {
                next(seen);
            }
            for (String session : List.of("a", "b", "c")) {
                equal(List.of("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"), bySession.get(session));
            }
        });

        scenarioAlone("reconnect", "a processor goes on after the namespace was restarted", s -> {
            String queue = s.queue();
            BlockingQueue<String> seen = new LinkedBlockingQueue<>();
            ServiceBusProcessorClient processor = s.closing(s.newBuilder().retryOptions(Stage.RETRIES).processor().queueName(queue)
                .processMessage(context -> seen.add(context.getMessage().getBody().toString())).processError(context -> {
                }).buildProcessorClient());
            processor.start();
            ServiceBusSenderClient sender = s.closing(s.newBuilder().retryOptions(Stage.RETRIES).sender().queueName(queue).buildClient());
            sender.sendMessage(new ServiceBusMessage("before"));
            equal("before", next(seen));
            waitForEmpty(s, queue);
            s.restart();
            sender.sendMessage(new ServiceBusMessage("after"));
            equal("after", next(seen));
        });
    }

    private ProcessorScenarios() {
    }
}
