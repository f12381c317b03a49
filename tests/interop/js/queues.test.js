const assert = require("node:assert/strict");
const { test } = require("node:test");
const { setImmediate } = require("node:timers/promises");
const Long = require("long");
const { bodies, newQueue, openAdministration, openClient, take, takeNone } = require("./namespace");

const administration = openAdministration();
const client = openClient();

/** A queue of its own with these messages in it, and a receiver on it. */
async function filled(...messages) {
  const queue = await newQueue(administration);
  const sender = client.createSender(queue);
  if (messages.length > 0) await sender.sendMessages(messages.map((body) => ({ body })));
  return { queue, sender, receiver: client.createReceiver(queue) };
}

const deadLetters = (queue) => client.createReceiver(queue, { subQueueType: "deadLetter" });

test("a message arrives with everything it was sent with", async () => {
  const { sender, receiver } = await filled();
  const sent = {
    body: { text: "größer", list: [1, 2], nothing: null },
    messageId: "m-1",
    correlationId: "c-1",
    contentType: "application/json",
    subject: "subject",
    to: "to",
    replyTo: "reply",
    replyToSessionId: "reply-session",
    partitionKey: "key",
    timeToLive: 600_000,
    applicationProperties: { text: "t", whole: 7, negative: -7, ratio: 1.5, yes: true },
  };
  const before = Date.now();
  await sender.sendMessages(sent);
  const [message] = await take(receiver);
  for (const [property, value] of Object.entries(sent)) assert.deepEqual(message[property], value, property);
  assert.equal(message.deliveryCount, 0);
  assert.deepEqual(message.sequenceNumber, Long.fromNumber(1));
  assert.equal(message.state, "active");
  assert.ok(message.enqueuedTimeUtc.getTime() >= before - 1000);
  assert.ok(message.lockedUntilUtc.getTime() > before + 50_000);
  assert.match(message.lockToken, /^[0-9a-f-]{36}$/);
  await receiver.completeMessage(message);
});

test("bodies of every kind arrive as they were", async () => {
  const kinds = ["text", "", 42, 1.5, true, null, [1, "two"], { a: { b: 1 } }, Buffer.from([0, 1, 255])];
  const { receiver } = await filled(...kinds);
  const messages = await take(receiver, kinds.length);
  assert.deepEqual(bodies(messages), kinds);
});

test("AMQP value and sequence bodies arrive as such", async () => {
  const { sender, receiver } = await filled();
  await sender.sendMessages({ bodyType: "value", body: { a: 1 } });
  await sender.sendMessages({ bodyType: "sequence", body: [[1, 2], ["three"]] });
  const [value, sequence] = await take(receiver, 2);
  assert.equal(value._rawAmqpMessage.bodyType, "value");
  assert.deepEqual(value.body, { a: 1 });
  assert.equal(sequence._rawAmqpMessage.bodyType, "sequence");
  assert.deepEqual(sequence.body, [[1, 2], ["three"]]);
});

test("single messages, arrays and batches arrive in the order they were sent", async () => {
  const { sender, receiver } = await filled();
  await sender.sendMessages({ body: 0 });
  await sender.sendMessages([{ body: 1 }, { body: 2 }]);
  const batch = await sender.createMessageBatch();
  for (let body = 3; body < 20; body += 1) assert.equal(batch.tryAddMessage({ body }), true);
  await sender.sendMessages(batch);
  const messages = await take(receiver, 20);
  assert.deepEqual(bodies(messages), [...Array(20).keys()]);
  for (const message of messages) await receiver.completeMessage(message);
  await takeNone(receiver);
});

test("a batch that is full is accepted, whatever its messages are like", async () => {
  const { sender } = await filled();
  const kinds = [{}, { messageId: "m".repeat(128), partitionKey: "p".repeat(128) }];
  kinds.push({ applicationProperties: Object.fromEntries(Array.from({ length: 30 }, (_, each) => [`p${each}`, "v"])) });
  for (const kind of kinds) {
    for (const size of [100, 200, 250, 256, 1000, 60_000, 130_000, 261_000]) {
      const batch = await sender.createMessageBatch();
      while (batch.tryAddMessage({ body: Buffer.alloc(size), ...kind }));
      if (batch.count > 0) await sender.sendMessages(batch);
    }
  }
});

test("a message has up to the size that its queue allows", async () => {
  const queue = await newQueue(administration, { maxMessageSizeInKilobytes: 2048 });
  assert.equal((await administration.getQueue(queue)).maxMessageSizeInKilobytes, 2048);
  const sender = client.createSender(queue);
  await sender.sendMessages({ body: Buffer.alloc(2_000_000) });
  await sender.sendMessages([{ body: Buffer.alloc(1_500_000) }]);
  await assert.rejects(sender.sendMessages({ body: Buffer.alloc(2_097_152) }), { code: "MessageSizeExceeded" });
  const receiver = client.createReceiver(queue);
  const [peeked] = await receiver.peekMessages(10);
  assert.equal(peeked.body.length, 2_000_000);
  const messages = await take(receiver, 2);
  assert.deepEqual(messages.map((message) => message.body.length), [2_000_000, 1_500_000]);
});

test("a batch takes messages up to the size the link allows", async () => {
  const { sender } = await filled();
  const batch = await sender.createMessageBatch();
  assert.equal(batch.maxSizeInBytes, 262_144);
  const message = { body: Buffer.alloc(60_000) };
  while (batch.tryAddMessage(message));
  assert.equal(batch.count, 4);
  await sender.sendMessages(batch);
});

test("a message of several frames arrives whole, and so does the one after it", async () => {
  const body = Buffer.alloc(250_000, "large");
  const { sender, receiver } = await filled();
  await sender.sendMessages({ body });
  await sender.sendMessages({ body: "small" });
  const [large, small] = await take(receiver, 2);
  assert.ok(large.body.equals(body));
  assert.equal(small.body, "small");
});

test("a message without an id is given one and can be settled", async () => {
  const { receiver } = await filled("no id");
  const [message] = await take(receiver);
  assert.match(message.messageId, /^[0-9a-f]{32}$/);
  await receiver.completeMessage(message);
  await takeNone(receiver);
});

test("an abandoned message comes again with a higher delivery count and the properties to modify", async () => {
  const { receiver } = await filled("again");
  const [first] = await take(receiver);
  await receiver.abandonMessage(first, { attempt: 1 });
  const [second] = await take(receiver);
  assert.equal(second.deliveryCount, 1);
  assert.equal(second.applicationProperties.attempt, 1);
  await receiver.completeMessage(second);
});

test("an abandoned message with a delivery time is scheduled until then", async () => {
  const { receiver } = await filled("later");
  const [first] = await take(receiver);
  const until = new Date(Date.now() + 3_600_000);
  await receiver.abandonMessage(first, { "x-opt-delivery-time": until });
  await takeNone(receiver);
  const [peeked] = await receiver.peekMessages(1, { fromSequenceNumber: first.sequenceNumber });
  assert.equal(peeked.state, "scheduled");
  assert.equal(peeked.scheduledEnqueueTimeUtc.getTime(), until.getTime());
  assert.equal(peeked.deliveryCount, 1);
});

test("a deferred message is received by its number and in no other way", async () => {
  const { receiver } = await filled("deferred", "next");
  const [message] = await take(receiver);
  await receiver.deferMessage(message, { reason: "later" });
  assert.deepEqual(bodies(await take(receiver)), ["next"]);
  await takeNone(receiver);
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  assert.equal(deferred.body, "deferred");
  assert.equal(deferred.state, "deferred");
  assert.equal(deferred.applicationProperties.reason, "later");
  await receiver.completeMessage(deferred);
  await assert.rejects(receiver.receiveDeferredMessages(message.sequenceNumber), { code: "MessageNotFound" });
});

test("a dead-lettered message lies in the dead-letter queue with its reason and description", async () => {
  const { queue, receiver } = await filled("dead");
  const [message] = await take(receiver);
  await receiver.deadLetterMessage(message, {
    deadLetterReason: "bad",
    deadLetterErrorDescription: "it is bad",
    checked: true,
  });
  await takeNone(receiver);
  const dead = deadLetters(queue);
  const [found] = await take(dead);
  assert.equal(found.body, "dead");
  assert.equal(found.deadLetterReason, "bad");
  assert.equal(found.deadLetterErrorDescription, "it is bad");
  assert.equal(found.applicationProperties.checked, true);
  await dead.completeMessage(found);
  await takeNone(dead);
});

test("a message that was delivered too often is dead-lettered by the broker", async () => {
  const queue = await newQueue(administration, { maxDeliveryCount: 2 });
  await client.createSender(queue).sendMessages({ body: "poison" });
  const receiver = client.createReceiver(queue);
  for (let attempt = 0; attempt < 2; attempt += 1) {
    const [message] = await take(receiver);
    await receiver.abandonMessage(message);
  }
  const [dead] = await take(deadLetters(queue));
  assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
});

test("receive and delete takes messages out for good", async () => {
  const { queue } = await filled("a", "b");
  const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
  const messages = await take(receiver, 2);
  assert.deepEqual(bodies(messages), ["a", "b"]);
  assert.equal(messages[0].lockToken, undefined);
  const runtime = await administration.getQueueRuntimeProperties(queue);
  assert.equal(runtime.totalMessageCount, 0);
});

test("peek shows messages, locked ones too, without taking them", async () => {
  const { receiver } = await filled("a", "b", "c");
  await take(receiver);
  assert.deepEqual(bodies(await receiver.peekMessages(2)), ["a", "b"]);
  assert.deepEqual(bodies(await receiver.peekMessages(5)), ["c"]);
  assert.deepEqual(await receiver.peekMessages(5), []);
  assert.deepEqual(bodies(await receiver.peekMessages(5, { fromSequenceNumber: Long.fromNumber(2) })), ["b", "c"]);
});

test("renewing a lock moves its end", async () => {
  const { receiver } = await filled("held");
  const [message] = await take(receiver);
  const before = message.lockedUntilUtc;
  const until = await receiver.renewMessageLock(message);
  assert.ok(until >= before);
  assert.deepEqual(message.lockedUntilUtc, until);
  await receiver.completeMessage(message);
});

test("a receiver that waits longer than needed gives back what it did not ask for", async () => {
  const { receiver } = await filled("one", "two", "three");
  assert.deepEqual(bodies(await take(receiver)), ["one"]);
  const other = await receiver.receiveMessages(10, { maxWaitTimeInMs: 1000 });
  assert.deepEqual(bodies(other), ["two", "three"]);
  for (const message of other) assert.equal(message.deliveryCount, 0);
});

test("a receive on an empty queue ends in time and leaves the link in use", async () => {
  const { sender, receiver } = await filled();
  await takeNone(receiver);
  await takeNone(receiver);
  await sender.sendMessages({ body: "then" });
  assert.deepEqual(bodies(await take(receiver)), ["then"]);
});

test("a subscriber gets messages as they come and completes them by itself", async () => {
  const { queue, sender, receiver } = await filled();
  const seen = [];
  const all = new Promise((resolve, reject) => {
    receiver.subscribe({
      processMessage: async (message) => {
        seen.push(message.body);
        if (seen.length === 50) resolve();
      },
      processError: async ({ error }) => reject(error),
    });
  });
  for (let start = 0; start < 50; start += 10) {
    await sender.sendMessages([...Array(10).keys()].map((each) => ({ body: start + each })));
  }
  await all;
  await receiver.close();
  assert.deepEqual(seen, [...Array(50).keys()]);
  assert.equal((await administration.getQueueRuntimeProperties(queue)).totalMessageCount, 0);
});

test("a subscriber works on several messages at once and abandons what its handler fails on", async () => {
  const { receiver } = await filled("good", "bad");
  const seen = [];
  await new Promise((resolve, reject) => {
    receiver.subscribe(
      {
        processMessage: async (message) => {
          seen.push(`${message.body} ${message.deliveryCount}`);
          // rhea 3.0.5 writes two neighbouring outcomes of one turn as one, without a look whether they are the same.
          if (message.body === "bad") await setImmediate();
          if (message.body === "bad" && message.deliveryCount === 0) throw new Error("on purpose");
          if (seen.length === 3) resolve();
        },
        processError: async ({ error }) => error.message === "on purpose" || reject(error),
      },
      { maxConcurrentCalls: 5 },
    );
  });
  await receiver.close();
  assert.deepEqual(seen.sort(), ["bad 0", "bad 1", "good 0"]);
});

test("an iterator hands out messages one by one", async () => {
  const { receiver } = await filled("a", "b");
  const seen = [];
  for await (const message of receiver.getMessageIterator()) {
    seen.push(message.body);
    await receiver.completeMessage(message);
    if (seen.length === 2) break;
  }
  assert.deepEqual(seen, ["a", "b"]);
});

test("a message can be settled by another receiver of its queue", async () => {
  const { queue, receiver } = await filled("handed on");
  const [message] = await take(receiver);
  await receiver.close();
  const other = client.createReceiver(queue);
  await other.completeMessage(message);
  assert.equal((await administration.getQueueRuntimeProperties(queue)).totalMessageCount, 0);
});

test("many settlements at once are all answered", async () => {
  const { queue, receiver } = await filled(...Array(100).keys());
  const messages = await take(receiver, 100);
  await Promise.all(messages.map((message) => receiver.completeMessage(message)));
  assert.equal((await administration.getQueueRuntimeProperties(queue)).totalMessageCount, 0);
});

test("links and clients are closed and opened again on one connection", async () => {
  const { queue } = await filled("a", "b", "c");
  for (const body of ["a", "b", "c"]) {
    const receiver = client.createReceiver(queue);
    const [message] = await take(receiver);
    assert.equal(message.body, body);
    await receiver.completeMessage(message);
    await receiver.close();
  }
});
