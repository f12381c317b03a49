const assert = require("node:assert/strict");
const { test } = require("node:test");
const { bodies, newQueue, openAdministration, openClient, take, takeNone } = require("./namespace");

const administration = openAdministration();
const client = openClient();

async function sessionQueue(...messages) {
  const queue = await newQueue(administration, { requiresSession: true });
  const sender = client.createSender(queue);
  for (const [sessionId, body] of messages) await sender.sendMessages({ body, sessionId });
  return { queue, sender };
}

test("the receiver of a named session gets that session's messages in order", async () => {
  const { queue } = await sessionQueue(["a", 1], ["b", 2], ["a", 3], ["a", 4]);
  const receiver = await client.acceptSession(queue, "a");
  assert.equal(receiver.sessionId, "a");
  assert.ok(receiver.sessionLockedUntilUtc.getTime() > Date.now() + 30_000);
  const messages = await take(receiver, 3);
  assert.deepEqual(bodies(messages), [1, 3, 4]);
  for (const message of messages) {
    assert.equal(message.sessionId, "a");
    await receiver.completeMessage(message);
  }
  await takeNone(receiver);
  await receiver.close();
});

test("the next session is one that is free and has messages", async () => {
  const { queue } = await sessionQueue(["a", 1], ["b", 2]);
  const first = await client.acceptNextSession(queue);
  const second = await client.acceptNextSession(queue);
  assert.deepEqual([first.sessionId, second.sessionId], ["a", "b"]);
  assert.deepEqual(bodies(await take(second)), [2]);
  await first.close();
  await second.close();
});

test("whoever waits for the next session gets it when a message comes", async () => {
  const { queue, sender } = await sessionQueue();
  const waiting = client.acceptNextSession(queue);
  await sender.sendMessages({ body: "late", sessionId: "late" });
  const receiver = await waiting;
  assert.equal(receiver.sessionId, "late");
  assert.deepEqual(bodies(await take(receiver)), ["late"]);
  await receiver.close();
});

test("waiting for the next session ends with a timeout", async () => {
  const { queue } = await sessionQueue();
  const hasty = openClient({ retryOptions: { timeoutInMs: 500 } });
  await assert.rejects(hasty.acceptNextSession(queue), { code: "ServiceTimeout" });
});

test("a session that is held cannot be accepted until its receiver is closed", async () => {
  const { queue } = await sessionQueue(["a", 1]);
  const first = await client.acceptSession(queue, "a");
  const [message] = await take(first);
  await assert.rejects(client.acceptSession(queue, "a"), { code: "SessionCannotBeLocked" });
  await first.close();
  const second = await client.acceptSession(queue, "a");
  const [again] = await take(second);
  assert.equal(again.messageId, message.messageId);
  await second.completeMessage(again);
  await second.close();
});

test("state stays with the session when its receiver is gone, and can be cleared", async () => {
  const { queue } = await sessionQueue();
  const first = await client.acceptSession(queue, "s");
  assert.equal(await first.getSessionState(), null);
  await first.setSessionState({ step: 3, text: "größer" });
  await first.close();
  const second = await client.acceptSession(queue, "s");
  assert.deepEqual(await second.getSessionState(), { step: 3, text: "größer" });
  await second.setSessionState(null);
  assert.equal(await second.getSessionState(), null);
  await second.close();
});

test("renewing a session's lock moves its end", async () => {
  const { queue } = await sessionQueue(["a", 1]);
  const receiver = await client.acceptSession(queue, "a");
  const before = receiver.sessionLockedUntilUtc;
  const until = await receiver.renewSessionLock();
  assert.ok(until >= before);
  assert.deepEqual(receiver.sessionLockedUntilUtc, until);
  await receiver.close();
});

test("peek in a session shows that session only", async () => {
  const { queue } = await sessionQueue(["a", 1], ["b", 2], ["a", 3]);
  const receiver = await client.acceptSession(queue, "a");
  assert.deepEqual(bodies(await receiver.peekMessages(5)), [1, 3]);
  await receiver.close();
});

test("messages in a session are abandoned, deferred and dead-lettered like others", async () => {
  const { queue } = await sessionQueue(["a", "again"], ["a", "deferred"], ["a", "dead"]);
  const receiver = await client.acceptSession(queue, "a");
  const [again, deferred, dead] = await take(receiver, 3);
  await receiver.abandonMessage(again);
  await receiver.deferMessage(deferred);
  await receiver.deadLetterMessage(dead, { deadLetterReason: "r", deadLetterErrorDescription: "d" });
  const [second] = await take(receiver);
  assert.deepEqual([second.body, second.deliveryCount], ["again", 1]);
  const [found] = await receiver.receiveDeferredMessages(deferred.sequenceNumber);
  assert.equal(found.body, "deferred");
  await receiver.completeMessage(found);
  await receiver.completeMessage(second);
  await receiver.close();
  const deadLetters = client.createReceiver(queue, { subQueueType: "deadLetter" });
  const [lying] = await take(deadLetters);
  assert.deepEqual([lying.body, lying.deadLetterReason, lying.sessionId], ["dead", "r", "a"]);
});

test("a subscriber to a session gets its messages as they come", async () => {
  const { queue, sender } = await sessionQueue(["a", 0]);
  const receiver = await client.acceptSession(queue, "a");
  const seen = [];
  const all = new Promise((resolve, reject) => {
    receiver.subscribe({
      processMessage: async (message) => {
        seen.push(message.body);
        if (seen.length === 5) resolve();
      },
      processError: async ({ error }) => reject(error),
    });
  });
  for (const body of [1, 2, 3, 4]) await sender.sendMessages({ body, sessionId: "a" });
  await all;
  await receiver.close();
  assert.deepEqual(seen, [0, 1, 2, 3, 4]);
});

test("a session's messages can be scheduled", async () => {
  const { queue, sender } = await sessionQueue();
  await sender.scheduleMessages({ body: "due", sessionId: "s" }, new Date(Date.now() - 1000));
  const receiver = await client.acceptNextSession(queue);
  assert.deepEqual(bodies(await take(receiver)), ["due"]);
  await receiver.close();
});

test("a queue with sessions refuses messages and receivers without one", async () => {
  const { queue, sender } = await sessionQueue();
  await assert.rejects(sender.sendMessages({ body: "homeless" }), { name: "ServiceBusError" });
  await assert.rejects(client.createReceiver(queue).receiveMessages(1), { name: "ServiceBusError" });
});

test("a queue without sessions refuses to have one accepted", async () => {
  const queue = await newQueue(administration);
  await assert.rejects(client.acceptSession(queue, "a"), { name: "ServiceBusError" });
});
