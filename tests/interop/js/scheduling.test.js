const assert = require("node:assert/strict");
const { test } = require("node:test");
const { bodies, newQueue, openAdministration, openClient, passTime, take, takeNone } = require("./namespace");

// The SDK's tokens for administration last five minutes: all tests together move the clock by less.
const administration = openAdministration();
const client = openClient();

/** By the server's clock, which runs ahead of ours once a test has moved it. */
const inSeconds = async (seconds) => new Date((await passTime(0)) + seconds * 1000);

test("a scheduled message is there to peek and not to receive until its time", async () => {
  const queue = await newQueue(administration);
  const sender = client.createSender(queue);
  const receiver = client.createReceiver(queue);
  const [number] = await sender.scheduleMessages({ body: "soon" }, await inSeconds(3600));
  const [peeked] = await receiver.peekMessages(1);
  assert.equal(peeked.state, "scheduled");
  assert.deepEqual(peeked.sequenceNumber, number);
  await takeNone(receiver);
  await sender.scheduleMessages({ body: "at once" }, await inSeconds(-1));
  assert.deepEqual(bodies(await take(receiver)), ["at once"]);
});

test("a scheduled message comes when its time has come", async () => {
  const queue = await newQueue(administration);
  const sender = client.createSender(queue);
  await sender.scheduleMessages([{ body: "a" }, { body: "b" }], await inSeconds(60));
  await sender.sendMessages({ body: "by property", scheduledEnqueueTimeUtc: await inSeconds(61) });
  const receiver = client.createReceiver(queue);
  await takeNone(receiver);
  await passTime(90);
  const messages = await take(receiver, 3);
  assert.deepEqual(bodies(messages), ["a", "b", "by property"]);
  for (const message of messages) assert.ok(message.enqueuedTimeUtc >= message.scheduledEnqueueTimeUtc);
});

test("a cancelled message is gone and cannot be cancelled twice", async () => {
  const queue = await newQueue(administration);
  const sender = client.createSender(queue);
  const numbers = await sender.scheduleMessages([{ body: "a" }, { body: "b" }, { body: "c" }], await inSeconds(3600));
  await sender.cancelScheduledMessages(numbers.slice(0, 2));
  await assert.rejects(sender.cancelScheduledMessages(numbers[0]), { code: "MessageNotFound" });
  const receiver = client.createReceiver(queue);
  assert.deepEqual(bodies(await receiver.peekMessages(5)), ["c"]);
  assert.equal((await administration.getQueueRuntimeProperties(queue)).scheduledMessageCount, 1);
});

test("a message whose lock ran out comes again and its first receiver is told", async () => {
  const queue = await newQueue(administration, { lockDuration: "PT5S" });
  await client.createSender(queue).sendMessages({ body: "slow" });
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const [first] = await take(receiver);
  await passTime(6);
  const [second] = await take(receiver);
  assert.equal(second.deliveryCount, 1);
  await assert.rejects(receiver.completeMessage(first), { code: "MessageLockLost" });
  await assert.rejects(receiver.renewMessageLock(first), { code: "MessageLockLost" });
  await receiver.completeMessage(second);
});

test("a message that outlived its time is dead-lettered where the queue says so, and dropped where not", async () => {
  const keeps = await newQueue(administration, { deadLetteringOnMessageExpiration: true });
  const drops = await newQueue(administration);
  for (const queue of [keeps, drops]) {
    await client.createSender(queue).sendMessages({ body: "short", timeToLive: 20_000 });
  }
  await passTime(30);
  const [dead] = await take(client.createReceiver(keeps, { subQueueType: "deadLetter" }));
  assert.equal(dead.deadLetterReason, "TTLExpiredException");
  await takeNone(client.createReceiver(drops));
  await takeNone(client.createReceiver(drops, { subQueueType: "deadLetter" }));
});

test("a session lock that ran out is told to its receiver, and the session is free", async () => {
  const queue = await newQueue(administration, { requiresSession: true, lockDuration: "PT5S" });
  await client.createSender(queue).sendMessages({ body: "in session", sessionId: "s" });
  const receiver = await client.acceptSession(queue, "s", { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await take(receiver);
  await passTime(6);
  await assert.rejects(receiver.completeMessage(message), { code: "SessionLockLost" });
  const next = await client.acceptSession(queue, "s");
  const [again] = await take(next);
  assert.equal(again.deliveryCount, 1);
  await next.close();
});

test("a duplicate inside the window is taken and dropped", async () => {
  const queue = await newQueue(administration, {
    requiresDuplicateDetection: true,
    duplicateDetectionHistoryTimeWindow: "PT20S",
  });
  const sender = client.createSender(queue);
  const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
  await sender.sendMessages({ body: "first", messageId: "same" });
  await sender.sendMessages({ body: "second", messageId: "same" });
  assert.deepEqual(bodies(await take(receiver)), ["first"]);
  await takeNone(receiver);
  await passTime(21);
  await sender.sendMessages({ body: "third", messageId: "same" });
  assert.deepEqual(bodies(await take(receiver)), ["third"]);
});
