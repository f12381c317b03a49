const assert = require("node:assert/strict");
const { test } = require("node:test");
const { freshName, newQueue, newTopic, openAdministration, openClient } = require("./namespace");

const administration = openAdministration();

const names = async (pages) => {
  const found = [];
  for await (const each of pages) found.push(each.name ?? each.subscriptionName);
  return found;
};

test("a queue comes back as it was created", async () => {
  const name = freshName("queue");
  const wanted = {
    lockDuration: "PT30S",
    maxSizeInMegabytes: 2048,
    requiresDuplicateDetection: true,
    requiresSession: true,
    defaultMessageTimeToLive: "P2D",
    deadLetteringOnMessageExpiration: true,
    duplicateDetectionHistoryTimeWindow: "PT2M",
    maxDeliveryCount: 7,
    enableBatchedOperations: false,
    autoDeleteOnIdle: "PT1H",
    status: "Active",
    userMetadata: "made by <a test> & more",
  };
  const created = await administration.createQueue(name, wanted);
  const read = await administration.getQueue(name);
  for (const [property, value] of Object.entries(wanted)) {
    assert.equal(created[property], value, `created ${property}`);
    assert.equal(read[property], value, `read ${property}`);
  }
  assert.equal(read.name, name);
  assert.equal(read.availabilityStatus, "Available");
});

test("a queue without options has the defaults of the service", async () => {
  const read = await administration.getQueue(await newQueue(administration));
  assert.equal(read.lockDuration, "PT1M");
  assert.equal(read.maxSizeInMegabytes, 1024);
  assert.equal(read.maxDeliveryCount, 10);
  assert.equal(read.requiresSession, false);
  assert.equal(read.enablePartitioning, false);
  assert.equal(read.enableBatchedOperations, true);
  assert.equal(read.duplicateDetectionHistoryTimeWindow, "PT10M");
  assert.equal(read.defaultMessageTimeToLive, "P10675199DT2H48M5.4775807S");
});

test("what may change in a queue can be updated", async () => {
  const queue = await administration.getQueue(await newQueue(administration));
  const updated = await administration.updateQueue({ ...queue, maxDeliveryCount: 3, lockDuration: "PT45S" });
  assert.equal(updated.maxDeliveryCount, 3);
  assert.equal((await administration.getQueue(queue.name)).lockDuration, "PT45S");
});

test("what is fixed at creation is refused in an update", async () => {
  const queue = await administration.getQueue(await newQueue(administration));
  await assert.rejects(administration.updateQueue({ ...queue, requiresSession: true }), { statusCode: 400 });
  await assert.rejects(administration.updateQueue({ ...queue, enablePartitioning: true }), { statusCode: 400 });
});

test("an entity exists until it is deleted, under any case of its name", async () => {
  const queue = await newQueue(administration);
  assert.equal(await administration.queueExists(queue.toUpperCase()), true);
  await administration.deleteQueue(queue);
  assert.equal(await administration.queueExists(queue), false);
  await assert.rejects(administration.getQueue(queue), { code: "MessageEntityNotFoundError", statusCode: 404 });
  await assert.rejects(administration.deleteQueue(queue), { code: "MessageEntityNotFoundError", statusCode: 404 });
});

test("a second entity of the same name is refused", async () => {
  const queue = await newQueue(administration);
  const conflict = { code: "MessageEntityAlreadyExistsError", statusCode: 409 };
  await assert.rejects(administration.createQueue(queue), conflict);
  await assert.rejects(administration.createTopic(queue), conflict);
});

test("a name may have slashes", async () => {
  const name = `${freshName("a")}/b/c`;
  await administration.createQueue(name);
  assert.equal((await administration.getQueue(name)).name, name);
  await administration.deleteQueue(name);
});

test("values out of range are refused and the error says what is allowed", async () => {
  await assert.rejects(administration.createQueue(freshName("queue"), { lockDuration: "PT6M" }), (error) => {
    assert.equal(error.statusCode, 400);
    assert.match(error.message, /LockDuration|lock duration/i);
    return true;
  });
});

test("a list has every queue, by name", async () => {
  const made = [];
  for (let count = 0; count < 3; count += 1) made.push(await newQueue(administration));
  const all = await names(administration.listQueues());
  for (const name of made) assert.ok(all.includes(name));
  assert.deepEqual(all, [...all].sort());
});

test("a list comes in pages of the size asked for", async () => {
  const topic = await newTopic(administration, ["a", "b", "c", "d", "e"]);
  const pages = [];
  for await (const page of administration.listSubscriptions(topic).byPage({ maxPageSize: 2 })) {
    pages.push(page.map((subscription) => subscription.subscriptionName));
  }
  assert.deepEqual(pages, [["a", "b"], ["c", "d"], ["e"]]);
});

test("runtime properties count messages by what became of them", async () => {
  const queue = await newQueue(administration);
  const unused = await administration.getQueueRuntimeProperties(queue);
  assert.equal(unused.accessedAt.toISOString(), "0001-01-01T00:00:00.000Z");
  const client = openClient();
  const sender = client.createSender(queue);
  await sender.sendMessages([{ body: "a" }, { body: "b" }, { body: "c" }]);
  await sender.scheduleMessages({ body: "later" }, new Date(Date.now() + 3_600_000));
  const receiver = client.createReceiver(queue);
  const [message] = await receiver.receiveMessages(1);
  await receiver.deadLetterMessage(message);
  const runtime = await administration.getQueueRuntimeProperties(queue);
  assert.equal(runtime.activeMessageCount, 2);
  assert.equal(runtime.deadLetterMessageCount, 1);
  assert.equal(runtime.scheduledMessageCount, 1);
  assert.equal(runtime.totalMessageCount, 4);
  assert.ok(runtime.sizeInBytes > 0);
  for (const moment of [runtime.createdAt, runtime.accessedAt]) {
    assert.ok(Math.abs(moment.getTime() - Date.now()) < 600_000);
  }
  const listed = [];
  for await (const each of administration.listQueuesRuntimeProperties()) listed.push(each);
  assert.equal(listed.find((each) => each.name === queue).activeMessageCount, 2);
});

test("a topic lives through create, get, update, list and delete", async () => {
  const name = await newTopic(administration, [], { maxSizeInMegabytes: 1024, userMetadata: "first" });
  const topic = await administration.getTopic(name);
  assert.equal(topic.userMetadata, "first");
  const updated = await administration.updateTopic({ ...topic, userMetadata: "second" });
  assert.equal(updated.userMetadata, "second");
  assert.ok((await names(administration.listTopics())).includes(name));
  assert.equal(await administration.topicExists(name), true);
  await administration.deleteTopic(name);
  assert.equal(await administration.topicExists(name), false);
});

test("a subscription lives through create, get, update, list and delete", async () => {
  const topic = await newTopic(administration, ["zulu", "alpha"]);
  const created = await administration.createSubscription(topic, "mike", { maxDeliveryCount: 4, requiresSession: true });
  assert.equal(created.topicName, topic);
  const read = await administration.getSubscription(topic, "mike");
  assert.equal(read.subscriptionName, "mike");
  assert.equal(read.requiresSession, true);
  assert.equal((await administration.updateSubscription({ ...read, maxDeliveryCount: 5 })).maxDeliveryCount, 5);
  assert.deepEqual(await names(administration.listSubscriptions(topic)), ["alpha", "mike", "zulu"]);
  assert.equal(await administration.subscriptionExists(topic, "mike"), true);
  await administration.deleteSubscription(topic, "mike");
  assert.equal(await administration.subscriptionExists(topic, "mike"), false);
  assert.equal((await administration.getTopicRuntimeProperties(topic)).subscriptionCount, 2);
});

test("a subscription's runtime properties count its own messages", async () => {
  const topic = await newTopic(administration, ["all"]);
  await openClient().createSender(topic).sendMessages([{ body: 1 }, { body: 2 }]);
  const runtime = await administration.getSubscriptionRuntimeProperties(topic, "all");
  assert.equal(runtime.activeMessageCount, 2);
  assert.equal(runtime.totalMessageCount, 2);
});

test("rules with every kind of filter and with actions come back as they were created", async () => {
  const topic = await newTopic(administration, ["rules"]);
  const correlation = {
    correlationId: "c",
    subject: "s",
    applicationProperties: { text: "red", count: 3, ratio: 0.5, isOpen: true },
  };
  await administration.createRule(topic, "rules", "sql", { sqlExpression: "colour = 'red' AND price < 10" });
  await administration.createRule(topic, "rules", "true", { sqlExpression: "1=1" });
  await administration.createRule(topic, "rules", "correlation", correlation);
  await administration.createRule(topic, "rules", "action", { sqlExpression: "1=1" }, { sqlExpression: "SET seen = 1" });
  const sql = await administration.getRule(topic, "rules", "sql");
  assert.equal(sql.filter.sqlExpression, "colour = 'red' AND price < 10");
  const read = await administration.getRule(topic, "rules", "correlation");
  assert.equal(read.filter.correlationId, "c");
  assert.equal(read.filter.subject, "s");
  assert.deepEqual(read.filter.applicationProperties, correlation.applicationProperties);
  assert.equal((await administration.getRule(topic, "rules", "action")).action.sqlExpression, "SET seen = 1");
  assert.deepEqual(await names(administration.listRules(topic, "rules")), [
    "$Default",
    "action",
    "correlation",
    "sql",
    "true",
  ]);
});

test("a rule can be updated and deleted", async () => {
  const topic = await newTopic(administration, ["rules"]);
  const rule = await administration.createRule(topic, "rules", "rule", { sqlExpression: "a = 1" });
  await administration.updateRule(topic, "rules", { ...rule, filter: { sqlExpression: "a = 2" } });
  assert.equal((await administration.getRule(topic, "rules", "rule")).filter.sqlExpression, "a = 2");
  assert.equal(await administration.ruleExists(topic, "rules", "rule"), true);
  await administration.deleteRule(topic, "rules", "rule");
  assert.equal(await administration.ruleExists(topic, "rules", "rule"), false);
});

test("a rule whose expression cannot be read is refused", async () => {
  const topic = await newTopic(administration, ["rules"]);
  await assert.rejects(administration.createRule(topic, "rules", "bad", { sqlExpression: "a = = 1" }), {
    statusCode: 400,
  });
});

test("the first rule of a subscription can be given when it is created", async () => {
  const topic = await newTopic(administration, []);
  await administration.createSubscription(topic, "red", {
    defaultRuleOptions: { name: "only-red", filter: { sqlExpression: "colour = 'red'" } },
  });
  assert.deepEqual(await names(administration.listRules(topic, "red")), ["only-red"]);
});

test("the namespace tells its name", async () => {
  const properties = await administration.getNamespaceProperties();
  assert.equal(properties.name, "interop");
  assert.equal(properties.messagingSku, "Standard");
});
