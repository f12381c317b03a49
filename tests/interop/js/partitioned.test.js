const assert = require("node:assert/strict");
const { test } = require("node:test");
const { bodies, newQueue, newTopic, openAdministration, openClient, take, takeNone } = require("./namespace");

const administration = openAdministration();
const client = openClient();
const PARTITIONED = { enablePartitioning: true };

const fragmentOf = (message) => message.sequenceNumber.shiftRightUnsigned(48).toNumber();
const numbered = (count, more = {}) => [...Array(count).keys()].map((body) => ({ body, ...more }));

test("a partitioned queue says so and keeps every message", async () => {
  const queue = await newQueue(administration, PARTITIONED);
  assert.equal((await administration.getQueue(queue)).enablePartitioning, true);
  const sender = client.createSender(queue);
  for (const message of numbered(20)) await sender.sendMessages(message);
  assert.equal((await administration.getQueueRuntimeProperties(queue)).activeMessageCount, 20);
  const receiver = client.createReceiver(queue);
  const messages = await take(receiver, 20);
  assert.deepEqual(bodies(messages).sort((a, b) => a - b), [...Array(20).keys()]);
  assert.ok(new Set(messages.map(fragmentOf)).size > 1);
  await Promise.all(messages.map((message) => receiver.completeMessage(message)));
  assert.equal((await administration.getQueueRuntimeProperties(queue)).totalMessageCount, 0);
});

test("messages with one partition key stay together and in order", async () => {
  const queue = await newQueue(administration, PARTITIONED);
  const sender = client.createSender(queue);
  for (const message of numbered(10, { partitionKey: "contoso" })) await sender.sendMessages(message);
  const messages = await take(client.createReceiver(queue), 10);
  assert.deepEqual(bodies(messages), [...Array(10).keys()]);
  assert.deepEqual([...new Set(messages.map(fragmentOf))], [8]);
});

test("messages are abandoned, deferred, dead-lettered and renewed whatever fragment they lie in", async () => {
  const queue = await newQueue(administration, PARTITIONED);
  const sender = client.createSender(queue);
  for (const partitionKey of ["0", "1", "2", "3"]) await sender.sendMessages({ body: partitionKey, partitionKey });
  const receiver = client.createReceiver(queue);
  const messages = new Map((await take(receiver, 4)).map((message) => [message.body, message]));
  await receiver.abandonMessage(messages.get("0"));
  await receiver.deferMessage(messages.get("1"));
  await receiver.deadLetterMessage(messages.get("2"));
  await receiver.renewMessageLock(messages.get("3"));
  await receiver.completeMessage(messages.get("3"));
  assert.deepEqual(bodies(await take(receiver)), ["0"]);
  const [deferred] = await receiver.receiveDeferredMessages(messages.get("1").sequenceNumber);
  await receiver.completeMessage(deferred);
  assert.deepEqual(bodies(await take(client.createReceiver(queue, { subQueueType: "deadLetter" }))), ["2"]);
});

test("a batch of different keys is refused, one of the same key is taken", async () => {
  const queue = await newQueue(administration, PARTITIONED);
  const sender = client.createSender(queue);
  await assert.rejects(
    sender.sendMessages([
      { body: 1, partitionKey: "a" },
      { body: 2, partitionKey: "b" },
    ]),
    { name: "ServiceBusError", code: "GeneralError" },
  );
  await sender.sendMessages(numbered(3, { partitionKey: "a" }));
  assert.deepEqual(bodies(await take(client.createReceiver(queue), 3)), [0, 1, 2]);
});

test("peek finds the messages of all fragments", async () => {
  const queue = await newQueue(administration, PARTITIONED);
  const sender = client.createSender(queue);
  for (const partitionKey of ["0", "1", "2", "3"]) await sender.sendMessages({ body: partitionKey, partitionKey });
  const receiver = client.createReceiver(queue);
  const seen = [];
  for (let more = await receiver.peekMessages(10); more.length > 0; more = await receiver.peekMessages(10)) {
    seen.push(...bodies(more));
  }
  assert.deepEqual(seen.sort(), ["0", "1", "2", "3"]);
});

test("sessions of a partitioned queue are in one fragment each and keep their state", async () => {
  const queue = await newQueue(administration, { ...PARTITIONED, requiresSession: true });
  const sender = client.createSender(queue);
  for (const sessionId of ["x", "y"]) await sender.sendMessages(numbered(3, { sessionId }));
  for (const sessionId of ["x", "y"]) {
    const receiver = await client.acceptSession(queue, sessionId);
    await receiver.setSessionState(sessionId);
    const messages = await take(receiver, 3);
    assert.deepEqual(bodies(messages), [0, 1, 2]);
    assert.equal(new Set(messages.map(fragmentOf)).size, 1);
    assert.equal(await receiver.getSessionState(), sessionId);
    await receiver.close();
  }
});

test("scheduled messages of a partitioned queue are cancelled by their numbers", async () => {
  const queue = await newQueue(administration, PARTITIONED);
  const sender = client.createSender(queue);
  const due = new Date(Date.now() + 3_600_000);
  for (const partitionKey of ["0", "1", "2"]) {
    const [number] = await sender.scheduleMessages({ body: partitionKey, partitionKey }, due);
    if (partitionKey !== "2") await sender.cancelScheduledMessages(number);
  }
  assert.equal((await administration.getQueueRuntimeProperties(queue)).scheduledMessageCount, 1);
});

test("subscriptions of a partitioned topic get every message once", async () => {
  const topic = await newTopic(administration, ["one", "two"], PARTITIONED);
  const sender = client.createSender(topic);
  for (const message of numbered(10)) await sender.sendMessages(message);
  for (const subscription of ["one", "two"]) {
    const receiver = client.createReceiver(topic, subscription, { receiveMode: "receiveAndDelete" });
    const messages = await take(receiver, 10);
    assert.deepEqual(bodies(messages).sort((a, b) => a - b), [...Array(10).keys()]);
    await takeNone(receiver);
  }
});
