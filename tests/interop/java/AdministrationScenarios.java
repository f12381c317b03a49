package twinbus.interop;

import static twinbus.interop.Stage.fresh;
import static twinbus.interop.Stage.takeOne;
import static twinbus.interop.Suite.equal;
import static twinbus.interop.Suite.raises;
import static twinbus.interop.Suite.scenario;
import static twinbus.interop.Suite.truth;

import com.azure.core.exception.HttpResponseException;
import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusServiceVersion;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.AccessRights;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.NamespaceProperties;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.QueueRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SharedAccessAuthorizationRule;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/** Entities and rules over HTTPS. */
final class AdministrationScenarios {
    private static void served(Stage s, ServiceBusServiceVersion version) {
        ServiceBusAdministrationClient client = s.administrationAt(version);
        String name = fresh("queue");
        equal(3, client.createQueue(name, new CreateQueueOptions().setMaxDeliveryCount(3)).getMaxDeliveryCount());
        QueueProperties shown = client.getQueue(name);
        equal(4, client.updateQueue(shown.setMaxDeliveryCount(4)).getMaxDeliveryCount());
        client.createTopic(name + "-topic");
        client.createSubscription(name + "-topic", "sub");
        equal(0, client.getSubscriptionRuntimeProperties(name + "-topic", "sub").getActiveMessageCount());
    }

    static void add() {
        scenario("administration", "a queue is created, shown, updated and deleted", s -> {
            ServiceBusAdministrationClient client = s.administration();
            String name = fresh("queue");
            String target = s.queue();
            CreateQueueOptions wanted = new CreateQueueOptions().setLockDuration(Duration.ofSeconds(45)).setMaxSizeInMegabytes(4096)
                .setDuplicateDetectionRequired(true).setSessionRequired(true).setDefaultMessageTimeToLive(Duration.ofHours(6))
                .setDeadLetteringOnMessageExpiration(true).setDuplicateDetectionHistoryTimeWindow(Duration.ofHours(4))
                .setMaxDeliveryCount(100).setBatchedOperationsEnabled(false).setStatus(EntityStatus.SEND_DISABLED)
                .setAutoDeleteOnIdle(Duration.ofMinutes(10)).setForwardDeadLetteredMessagesTo(target)
                .setUserMetadata("some <metadata> & more");
            wanted.getAuthorizationRules().add(new SharedAccessAuthorizationRule("reader", "primary", "secondary", List.of(AccessRights.LISTEN)));
            client.createQueue(name, wanted);
            QueueProperties shown = client.getQueue(name);
            equal(name, shown.getName());
            equal(Duration.ofSeconds(45), shown.getLockDuration());
            equal(4096, shown.getMaxSizeInMegabytes());
            equal(true, shown.isDuplicateDetectionRequired());
            equal(true, shown.isSessionRequired());
            equal(Duration.ofHours(6), shown.getDefaultMessageTimeToLive());
            equal(true, shown.isDeadLetteringOnMessageExpiration());
            equal(Duration.ofHours(4), shown.getDuplicateDetectionHistoryTimeWindow());
            equal(100, shown.getMaxDeliveryCount());
            equal(false, shown.isBatchedOperationsEnabled());
            equal(EntityStatus.SEND_DISABLED, shown.getStatus());
            equal(Duration.ofMinutes(10), shown.getAutoDeleteOnIdle());
            equal("some <metadata> & more", shown.getUserMetadata());
            String shownTarget = shown.getForwardDeadLetteredMessagesTo();
            truth(shownTarget.startsWith("https://") && shownTarget.endsWith("/" + target), shownTarget);
            SharedAccessAuthorizationRule rule = (SharedAccessAuthorizationRule) shown.getAuthorizationRules().get(0);
            equal(List.of("reader", "primary", "secondary"), List.of(rule.getKeyName(), rule.getPrimaryKey(), rule.getSecondaryKey()));
            equal(List.of(AccessRights.LISTEN), rule.getAccessRights());
            truth(client.getQueueExists(name), "it does not exist");

            QueueProperties updated = client.updateQueue(
                shown.setLockDuration(Duration.ofMinutes(1)).setStatus(EntityStatus.ACTIVE).setMaxDeliveryCount(5));
            equal(Duration.ofMinutes(1), updated.getLockDuration());
            equal(shownTarget, updated.getForwardDeadLetteredMessagesTo());
            equal(EntityStatus.ACTIVE, client.getQueue(name).getStatus());
            client.deleteQueue(name);
            truth(!client.getQueueExists(name), "it still exists");
        });

        scenario("administration", "a topic and its subscriptions are created, shown, updated and deleted", s -> {
            ServiceBusAdministrationClient client = s.administration();
            String topic = fresh("topic");
            client.createTopic(topic, new CreateTopicOptions().setMaxSizeInMegabytes(2048).setDuplicateDetectionRequired(true)
                .setDefaultMessageTimeToLive(Duration.ofMinutes(3)).setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(4))
                .setAutoDeleteOnIdle(Duration.ofMinutes(7)).setOrderingSupported(true).setUserMetadata("topic"));
            TopicProperties shown = client.getTopic(topic);
            equal(2048, shown.getMaxSizeInMegabytes());
            equal(true, shown.isDuplicateDetectionRequired());
            equal(Duration.ofMinutes(3), shown.getDefaultMessageTimeToLive());
            equal(Duration.ofMinutes(4), shown.getDuplicateDetectionHistoryTimeWindow());
            equal(Duration.ofMinutes(7), shown.getAutoDeleteOnIdle());
            equal(true, shown.isOrderingSupported());
            equal("changed", client.updateTopic(shown.setUserMetadata("changed")).getUserMetadata());

            client.createSubscription(topic, "sub", new CreateSubscriptionOptions().setLockDuration(Duration.ofMinutes(3))
                .setDefaultMessageTimeToLive(Duration.ofHours(1)).setDeadLetteringOnMessageExpiration(true)
                .setEnableDeadLetteringOnFilterEvaluationExceptions(false).setMaxDeliveryCount(11)
                .setAutoDeleteOnIdle(Duration.ofMinutes(5)).setUserMetadata("subscription"));
            SubscriptionProperties subscription = client.getSubscription(topic, "sub");
            equal(List.of(topic, "sub"), List.of(subscription.getTopicName(), subscription.getSubscriptionName()));
            equal(Duration.ofMinutes(3), subscription.getLockDuration());
            equal(11, subscription.getMaxDeliveryCount());
            equal(false, subscription.isDeadLetteringOnFilterEvaluationExceptions());
            equal("subscription", subscription.getUserMetadata());
            equal(12, client.updateSubscription(subscription.setMaxDeliveryCount(12)).getMaxDeliveryCount());
            truth(client.getSubscriptionExists(topic, "sub"), "the subscription does not exist");
            client.deleteSubscription(topic, "sub");
            truth(!client.getSubscriptionExists(topic, "sub"), "the subscription still exists");
            client.deleteTopic(topic);
            truth(!client.getTopicExists(topic), "the topic still exists");
        });

        scenario("administration", "rules of every kind are created, shown, updated, listed and deleted", s -> {
            ServiceBusAdministrationClient client = s.administration();
            String topic = s.topic("sub");
            client.createRule(topic, "true", "sub", new CreateRuleOptions(new TrueRuleFilter()));
            client.createRule(topic, "false", "sub", new CreateRuleOptions(new FalseRuleFilter()));
            SqlRuleFilter sql = new SqlRuleFilter("a = @a AND b < @b");
            Map<String, Object> values = Map.of("@a", "text", "@b", "more"); // the SDK writes every value as a string
            sql.getParameters().putAll(values);
            SqlRuleAction action = new SqlRuleAction("SET c = @c");
            action.getParameters().put("@c", "set");
            client.createRule(topic, "sql", "sub", new CreateRuleOptions(sql).setAction(action));
            CorrelationRuleFilter correlation = new CorrelationRuleFilter("correlation").setContentType("type").setMessageId("id")
                .setReplyTo("reply").setReplyToSessionId("reply session").setSessionId("session").setLabel("subject").setTo("to");
            correlation.getProperties().putAll(Map.of("a", "text", "b", "more"));
            client.createRule(topic, "correlation", "sub", new CreateRuleOptions(correlation));

            SqlRuleFilter shown = (SqlRuleFilter) client.getRule(topic, "sub", "sql").getFilter();
            equal("a = @a AND b < @b", shown.getSqlExpression());
            equal(values, shown.getParameters());
            SqlRuleAction shownAction = (SqlRuleAction) client.getRule(topic, "sub", "sql").getAction();
            equal("SET c = @c", shownAction.getSqlExpression());
            equal(correlation, client.getRule(topic, "sub", "correlation").getFilter());
            List<String> names = new ArrayList<>();
            client.listRules(topic, "sub").forEach(rule -> names.add(rule.getName()));
            equal(List.of("$Default", "correlation", "false", "sql", "true"), new ArrayList<>(new TreeSet<>(names)));
            RuleProperties changed = client.getRule(topic, "sub", "sql").setFilter(new SqlRuleFilter("1=1"));
            equal("1=1", ((SqlRuleFilter) client.updateRule(topic, "sub", changed).getFilter()).getSqlExpression());
            client.deleteRule(topic, "sub", "sql");
            raises(ResourceNotFoundException.class, x -> client.getRule(topic, "sub", "sql"));
        });

        scenario("administration", "runtime properties count messages", s -> {
            ServiceBusAdministrationClient client = s.administration();
            String queue = s.queue();
            OffsetDateTime before = OffsetDateTime.now().minusSeconds(5);
            equal(1, client.getQueueRuntimeProperties(queue).getAccessedAt().getYear());
            s.send(queue, "one", "two", "three");
            ServiceBusReceiverClient receiver = s.receiver(queue);
            receiver.deadLetter(takeOne(receiver));
            s.sender(queue).scheduleMessage(new ServiceBusMessage("later"), OffsetDateTime.now().plusHours(1));
            QueueRuntimeProperties shown = client.getQueueRuntimeProperties(queue);
            equal(List.of(2, 1, 1, 0, 0), List.of(shown.getActiveMessageCount(), shown.getDeadLetterMessageCount(),
                shown.getScheduledMessageCount(), shown.getTransferMessageCount(), shown.getTransferDeadLetterMessageCount()));
            equal(4, shown.getTotalMessageCount());
            truth(shown.getSizeInBytes() > 0, "no bytes");
            for (OffsetDateTime moment : List.of(shown.getCreatedAt(), shown.getUpdatedAt(), shown.getAccessedAt())) {
                truth(moment.isAfter(before), "it is older than the scenario");
            }
            String topic = s.topic("sub");
            s.topicSender(topic).sendMessage(new ServiceBusMessage("copy"));
            equal(1, client.getTopicRuntimeProperties(topic).getSubscriptionCount());
            equal(1, client.getSubscriptionRuntimeProperties(topic, "sub").getActiveMessageCount());
        });

        scenario("administration", "lists come in pages and hold everything once", s -> {
            ServiceBusAdministrationClient client = s.administration();
            String prefix = fresh("listed");
            String topic = s.topic();
            List<String> wanted = new ArrayList<>();
            for (int number = 0; number < 105; number++) { // a page of the SDK has 100 entries
                wanted.add(String.format("%s-%03d", prefix, number));
                client.createSubscription(topic, wanted.get(number));
            }
            for (String name : wanted.subList(0, 3)) {
                client.createQueue(name);
                client.createTopic(name + "-topic");
            }
            List<String> queues = new ArrayList<>();
            client.listQueues().forEach(each -> queues.add(each.getName()));
            equal(wanted.subList(0, 3), queues.stream().filter(name -> name.startsWith(prefix)).sorted().toList());
            List<String> topics = new ArrayList<>();
            client.listTopics().forEach(each -> topics.add(each.getName()));
            equal(3L, topics.stream().filter(name -> name.startsWith(prefix)).count());
            List<String> subscriptions = new ArrayList<>();
            int[] pages = {0};
            client.listSubscriptions(topic).iterableByPage().forEach(page -> {
                pages[0]++;
                page.getElements().forEach(each -> subscriptions.add(each.getSubscriptionName()));
            });
            equal(wanted, subscriptions.stream().sorted().toList());
            truth(pages[0] > 1, "all came in one page");
        });

        scenario("administration", "api version 2017-04 is served", s -> served(s, ServiceBusServiceVersion.V2017_04));
        scenario("administration", "api version 2021-05 is served", s -> served(s, ServiceBusServiceVersion.V2021_05));

        scenario("administration", "the namespace says what it is", s -> {
            NamespaceProperties shown = s.administration().getNamespaceProperties();
            truth(!shown.getName().isEmpty() && shown.getMessagingSku() != null && shown.getNamespaceType() != null, "it has no name, tier or type");
            truth(shown.getCreatedTime() != null, "it has no age");
        });

        scenario("errors", "administration is refused with the status of the service", s -> {
            ServiceBusAdministrationClient client = s.administration();
            String queue = s.queue();
            raises(ResourceExistsException.class, x -> client.createQueue(queue));
            raises(ResourceNotFoundException.class, x -> client.getQueue(fresh("nothing")));
            raises(ResourceNotFoundException.class, x -> client.deleteQueue(fresh("nothing")));
            equal(400, raises(HttpResponseException.class, x -> client.createQueue(fresh("queue"),
                new CreateQueueOptions().setLockDuration(Duration.ofMinutes(6)))).getResponse().getStatusCode());
            String forged = s.variable("TLS").replace("SharedAccessKey=", "SharedAccessKey=x");
            equal(401, raises(HttpResponseException.class, x -> s.administration(forged, ServiceBusServiceVersion.getLatest())
                .getQueue(queue)).getResponse().getStatusCode());
        });
    }

    private AdministrationScenarios() {
    }
}
