package twinbus.interop;

import static twinbus.interop.Stage.bodies;
import static twinbus.interop.Stage.take;
import static twinbus.interop.Stage.takeNone;
import static twinbus.interop.Stage.takeOne;
import static twinbus.interop.Suite.equal;
import static twinbus.interop.Suite.raises;
import static twinbus.interop.Suite.scenario;
import static twinbus.interop.Suite.truth;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import com.azure.messaging.servicebus.models.SubQueue;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Topics, subscriptions and rules at work. */
final class TopicScenarios {
    private static ServiceBusMessage order(String colour, int size) {
        ServiceBusMessage message = new ServiceBusMessage(colour).setSubject("order");
        message.getApplicationProperties().putAll(Map.of("colour", colour, "size", size, "big", true, "ratio", 1.5));
        return message;
    }

    private static void filtered(Stage s, String topic, String name, CreateRuleOptions rule) {
        s.administration().createSubscription(topic, name, "only", new CreateSubscriptionOptions(), rule);
    }

    static void add() {
        scenario("topics and rules", "every subscription gets a copy", s -> {
            String topic = s.topic("one", "two");
            s.topicSender(topic).sendMessage(new ServiceBusMessage("news"));
            for (String name : List.of("one", "two")) {
                ServiceBusReceiverClient receiver = s.subscription(topic, name);
                receiver.complete(takeOne(receiver));
            }
        });

        scenario("topics and rules", "SQL rules choose and change messages", s -> {
            String topic = s.topic();
            SqlRuleFilter filter = new SqlRuleFilter("size > 10 AND sys.Label LIKE 'ord%' AND colour = @colour");
            filter.getParameters().put("@colour", "blue");
            filtered(s, topic, "large", new CreateRuleOptions(filter).setAction(new SqlRuleAction("SET urgent = 'yes'; REMOVE size")));
            filtered(s, topic, "none", new CreateRuleOptions(new FalseRuleFilter()));
            filtered(s, topic, "all", new CreateRuleOptions(new TrueRuleFilter()));
            ServiceBusSenderClient sender = s.topicSender(topic);
            sender.sendMessages(List.of(order("red", 5), order("blue", 50)));
            equal(2, take(s.subscription(topic, "all"), 2).size());
            ServiceBusReceiverClient large = s.subscription(topic, "large");
            Map<String, Object> properties = takeOne(large).getApplicationProperties();
            equal("yes", properties.get("urgent"));
            truth(!properties.containsKey("size"), "the rule did not remove a property");
            takeNone(large);
            takeNone(s.subscription(topic, "none"));
        });

        scenario("topics and rules", "correlation rules match properties", s -> {
            String topic = s.topic();
            CorrelationRuleFilter filter = new CorrelationRuleFilter().setLabel("order");
            filter.getProperties().put("colour", "red"); // the SDK writes every value as a string here
            filtered(s, topic, "red", new CreateRuleOptions(filter));
            s.topicSender(topic).sendMessages(List.of(order("blue", 3), order("red", 3)));
            ServiceBusReceiverClient receiver = s.subscription(topic, "red");
            equal(List.of("red"), bodies(take(receiver, 1)));
            takeNone(receiver);
        });

        scenario("topics and rules", "rules are managed over AMQP", s -> {
            String topic = s.topic("sub");
            ServiceBusRuleManagerClient rules = s.closing(
                s.builder().ruleManager().topicName(topic).subscriptionName("sub").buildClient());
            rules.deleteRule("$Default");
            rules.createRule("red", new CreateRuleOptions(new SqlRuleFilter("colour = 'red'")));
            CorrelationRuleFilter filter = new CorrelationRuleFilter("c-1").setLabel("order").setTo("to");
            filter.getProperties().putAll(Map.of("size", 7, "big", true, "ratio", 1.5));
            rules.createRule("correlated", new CreateRuleOptions(filter).setAction(new SqlRuleAction("SET a = 1")));
            List<String> names = new ArrayList<>();
            rules.listRules().forEach(rule -> names.add(rule.getName()));
            equal(List.of("correlated", "red"), names.stream().sorted().toList());
            rules.listRules().forEach(rule -> {
                if (rule.getName().equals("correlated")) {
                    CorrelationRuleFilter shown = (CorrelationRuleFilter) rule.getFilter();
                    equal(List.of("c-1", "order", "to"), List.of(shown.getCorrelationId(), shown.getLabel(), shown.getTo()));
                    equal("SET a = 1", ((SqlRuleAction) rule.getAction()).getSqlExpression());
                } else {
                    equal("colour = 'red'", ((SqlRuleFilter) rule.getFilter()).getSqlExpression());
                }
            });
            List<ServiceBusMessage> orders = List.of(order("blue", 3), order("red", 3), order("green", 7), order("grey", 8));
            orders.forEach(each -> each.setCorrelationId("c-1").setTo("to"));
            s.topicSender(topic).sendMessages(orders);
            ServiceBusReceiverClient receiver = s.subscription(topic, "sub");
            equal(List.of("red", "green"), bodies(take(receiver, 2)));
            takeNone(receiver);
            raises(RuntimeException.class, x -> rules.createRule("red", new CreateRuleOptions(new SqlRuleFilter("1 = 1"))));
            raises(RuntimeException.class, x -> rules.deleteRule("no-such-rule"));
        });

        scenario("topics and rules", "the dead letters of a subscription are received", s -> {
            String topic = s.topic("sub");
            s.topicSender(topic).sendMessage(new ServiceBusMessage("bad"));
            ServiceBusReceiverClient receiver = s.subscription(topic, "sub");
            receiver.deadLetter(takeOne(receiver));
            ServiceBusReceiverClient dead = s.closing(s.builder().receiver().topicName(topic).subscriptionName("sub")
                .subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient());
            equal(List.of("bad"), bodies(take(dead, 1)));
        });

        scenario("topics and rules", "a subscription forwards to a queue, and its dead letters to another", s -> {
            String topic = s.topic();
            String target = s.queue();
            String graveyard = s.queue();
            s.administration().createSubscription(topic, "sub",
                new CreateSubscriptionOptions().setForwardTo(target).setForwardDeadLetteredMessagesTo(graveyard));
            s.topicSender(topic).sendMessage(new ServiceBusMessage("onwards"));
            equal(List.of("onwards"), bodies(take(s.receiver(target), 1)));
        });
    }

    private TopicScenarios() {
    }
}
