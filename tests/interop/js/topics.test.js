const assert = require("node:assert/strict");
const { test } = require("node:test");
const { bodies, newTopic, openAdministration, openClient, take, takeNone } = require("./namespace");

const administration = openAdministration();
const client = openClient();

const listed = async (manager) => {
  const rules = [];
  for await (const rule of manager.listRules()) rules.push(rule);
  return rules;
};

test("every subscription gets a copy of its own", async () => {
  const topic = await newTopic(administration, ["one", "two"]);
  await client.createSender(topic).sendMessages([{ body: "a" }, { body: "b" }]);
  for (const subscription of ["one", "two"]) {
    const receiver = client.createReceiver(topic, subscription);
    const messages = await take(receiver, 2);
    assert.deepEqual(bodies(messages), ["a", "b"]);
    for (const message of messages) await receiver.completeMessage(message);
    await takeNone(receiver);
  }
});

test("rules made over AMQP decide what a subscription gets", async () => {
  const topic = await newTopic(administration, ["sql", "correlation"]);
  const sql = client.createRuleManager(topic, "sql");
  await sql.deleteRule("$Default");
  await sql.createRule("red", { sqlExpression: "colour = 'red' AND size > 2" });
  const correlation = client.createRuleManager(topic, "correlation");
  await correlation.deleteRule("$Default");
  await correlation.createRule("blue", { subject: "s", applicationProperties: { colour: "blue" } });
  await client.createSender(topic).sendMessages([
    { body: "small red", applicationProperties: { colour: "red", size: 1 } },
    { body: "large red", applicationProperties: { colour: "red", size: 3 } },
    { body: "blue", subject: "s", applicationProperties: { colour: "blue" } },
    { body: "other blue", subject: "x", applicationProperties: { colour: "blue" } },
  ]);
  const receivers = ["sql", "correlation"].map((subscription) => client.createReceiver(topic, subscription));
  assert.deepEqual(bodies(await take(receivers[0])), ["large red"]);
  assert.deepEqual(bodies(await take(receivers[1])), ["blue"]);
  for (const receiver of receivers) await takeNone(receiver);
});

test("an action changes the copy it belongs to", async () => {
  const topic = await newTopic(administration, ["acted"]);
  const manager = client.createRuleManager(topic, "acted");
  await manager.deleteRule("$Default");
  await manager.createRule("act", { sqlExpression: "1=1" }, { sqlExpression: "SET seen = 1; REMOVE secret" });
  const applicationProperties = { secret: "s", kept: "k" };
  await client.createSender(topic).sendMessages({ body: "m", applicationProperties });
  const [message] = await take(client.createReceiver(topic, "acted"));
  assert.deepEqual(message.applicationProperties, { kept: "k", seen: 1, RuleName: "act" });
});

test("a rule may compare with times, whichever way it was made", async () => {
  const topic = await newTopic(administration, ["times"]);
  const manager = client.createRuleManager(topic, "times");
  const when = new Date("2024-05-01T10:00:00.123Z");
  await administration.createRule(topic, "times", "http", { applicationProperties: { when } });
  await manager.createRule("amqp", { applicationProperties: { when } });
  const rules = await listed(manager);
  assert.deepEqual(rules.slice(1).map((rule) => rule.filter.applicationProperties), [{ when }, { when }]);
  assert.deepEqual((await administration.getRule(topic, "times", "amqp")).filter.applicationProperties, { when });
});

test("rules are listed over AMQP as they were made there or over HTTP, and the list ends", async () => {
  const topic = await newTopic(administration, ["rules"]);
  const manager = client.createRuleManager(topic, "rules");
  await administration.createRule(topic, "rules", "http", { sqlExpression: "a = 1" }, { sqlExpression: "SET b = 2" });
  await manager.createRule("amqp", { correlationId: "c", applicationProperties: { n: 5, t: "x" } });
  const rules = await listed(manager);
  assert.deepEqual(
    rules.map((rule) => rule.name),
    ["$Default", "amqp", "http"],
  );
  assert.equal(rules[0].filter.sqlExpression, "1=1");
  assert.equal(rules[1].filter.correlationId, "c");
  assert.deepEqual(rules[1].filter.applicationProperties, { n: 5, t: "x" });
  assert.equal(rules[2].filter.sqlExpression, "a = 1");
  assert.equal(rules[2].action.sqlExpression, "SET b = 2");
  assert.equal((await administration.getRule(topic, "rules", "amqp")).filter.correlationId, "c");
});

test("a list of rules longer than one page has each of them once", async () => {
  const topic = await newTopic(administration, ["rules"]);
  const manager = client.createRuleManager(topic, "rules");
  for (let index = 0; index < 7; index += 1) await manager.createRule(`r${index}`, { correlationId: `${index}` });
  const names = [];
  for await (const page of manager.listRules().byPage({ maxPageSize: 3 })) names.push(...page.map((rule) => rule.name));
  assert.deepEqual(names, ["$Default", ...[...Array(7).keys()].map((index) => `r${index}`)]);
});

test("a rule that is there twice or not at all is an error with its own code", async () => {
  const topic = await newTopic(administration, ["rules"]);
  const manager = client.createRuleManager(topic, "rules");
  await assert.rejects(manager.createRule("$Default", { sqlExpression: "1=1" }), {
    code: "MessagingEntityAlreadyExists",
  });
  await assert.rejects(manager.deleteRule("none"), { code: "MessagingEntityNotFound" });
  await assert.rejects(manager.createRule("bad", { sqlExpression: "a = = 1" }), { name: "ServiceBusError" });
});

test("a subscription has a dead-letter queue of its own", async () => {
  const topic = await newTopic(administration, ["one", "two"]);
  await client.createSender(topic).sendMessages({ body: "m" });
  const receiver = client.createReceiver(topic, "one");
  const [message] = await take(receiver);
  await receiver.deadLetterMessage(message, { deadLetterReason: "r", deadLetterErrorDescription: "d" });
  const [dead] = await take(client.createReceiver(topic, "one", { subQueueType: "deadLetter" }));
  assert.deepEqual([dead.body, dead.deadLetterReason], ["m", "r"]);
  await takeNone(client.createReceiver(topic, "two", { subQueueType: "deadLetter" }));
});

test("a subscription with sessions hands them out one by one", async () => {
  const topic = await newTopic(administration, []);
  await administration.createSubscription(topic, "sessions", { requiresSession: true });
  await client.createSender(topic).sendMessages([{ body: 1, sessionId: "a" }]);
  const receiver = await client.acceptNextSession(topic, "sessions");
  assert.equal(receiver.sessionId, "a");
  assert.deepEqual(bodies(await take(receiver)), [1]);
  await receiver.close();
});

test("messages to a topic can be scheduled and cancelled", async () => {
  const topic = await newTopic(administration, ["all"]);
  const sender = client.createSender(topic);
  const [cancelled] = await sender.scheduleMessages({ body: "never" }, new Date(Date.now() + 3_600_000));
  await sender.cancelScheduledMessages(cancelled);
  await sender.scheduleMessages({ body: "due" }, new Date(Date.now() - 1000));
  assert.deepEqual(bodies(await take(client.createReceiver(topic, "all"))), ["due"]);
});

test("messages pass from a subscription on to the queue it forwards to", async () => {
  const topic = await newTopic(administration, []);
  const target = `${topic}-target`;
  await administration.createQueue(target);
  await administration.createSubscription(topic, "forwards", { forwardTo: target });
  await client.createSender(topic).sendMessages({ body: "passed on" });
  assert.deepEqual(bodies(await take(client.createReceiver(target))), ["passed on"]);
});
