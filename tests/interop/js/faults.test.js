const assert = require("node:assert/strict");
const { once, EventEmitter } = require("node:events");
const { test } = require("node:test");
const { bodies, disconnect, newQueue, openAdministration, openClient, take } = require("./namespace");

const administration = openAdministration();
// What is sent into a connection that was cut is noticed by the timeout only.
const PATIENT = { retryOptions: { maxRetries: 5, timeoutInMs: 1000 } };
const client = openClient(PATIENT);

const faults = {
  "its connection was cut": () => disconnect(),
  "its link was detached": (queue) => disconnect(queue),
};

test("a message can be settled after the connection it came by was cut", async () => {
  const queue = await newQueue(administration);
  const first = openClient();
  await first.createSender(queue).sendMessages({ body: "held" });
  const [held] = await take(first.createReceiver(queue));
  await disconnect();
  await openClient().createReceiver(queue).completeMessage(held);
  assert.equal((await administration.getQueueRuntimeProperties(queue)).totalMessageCount, 0);
});

for (const [fault, happen] of Object.entries(faults)) {
  test(`a sender goes on after ${fault}`, async () => {
    // What is sent twice because its answer was lost counts once.
    const queue = await newQueue(administration, { requiresDuplicateDetection: true });
    const sender = client.createSender(queue);
    for (const body of ["a", "b"]) {
      await sender.sendMessages({ body, messageId: body });
      await happen(queue);
    }
    await sender.sendMessages({ body: "c", messageId: "c" });
    assert.deepEqual(bodies(await take(client.createReceiver(queue), 3)), ["a", "b", "c"]);
  });

  test(`a receiver goes on after ${fault}`, async () => {
    const queue = await newQueue(administration);
    await openClient().createSender(queue).sendMessages([{ body: "held" }, { body: "next" }]);
    const receiver = client.createReceiver(queue);
    await take(receiver);
    await happen(queue);
    // The receive during which the SDK notices the loss fails; it is for the application to ask again.
    const again = await take(receiver).catch(() => take(receiver));
    assert.deepEqual(bodies(again), ["next"]);
    await receiver.completeMessage(again[0]);
  });

  test(`a subscriber goes on after ${fault}`, async () => {
    const queue = await newQueue(administration);
    const sender = client.createSender(queue);
    const receiver = client.createReceiver(queue);
    const arrivals = new EventEmitter();
    receiver.subscribe({
      processMessage: async ({ body }) => arrivals.emit(body),
      processError: async () => {},
    });
    for (const body of ["before", "after", "later"]) {
      const arrival = once(arrivals, body);
      await sender.sendMessages({ body });
      await arrival;
      await happen(queue);
    }
    await receiver.close();
  });

  test(`a session is free after ${fault}`, async () => {
    const queue = await newQueue(administration, { requiresSession: true });
    await openClient().createSender(queue).sendMessages({ body: "m", sessionId: "s" });
    const receiver = await client.acceptSession(queue, "s");
    await take(receiver);
    await happen(queue);
    const next = await openClient(PATIENT).acceptSession(queue, "s");
    assert.deepEqual(bodies(await take(next)), ["m"]);
    await next.close();
  });
}
