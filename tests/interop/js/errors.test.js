const assert = require("node:assert/strict");
const { test } = require("node:test");
const { connectionString, freshName, newQueue, newTopic, openAdministration, openClient, take } = require("./namespace");

const administration = openAdministration();
const client = openClient();

test("an entity that is not there is told as such by senders, receivers and requests", async () => {
  const name = freshName("nowhere");
  const notFound = { name: "ServiceBusError", code: "MessagingEntityNotFound" };
  await assert.rejects(client.createSender(name).sendMessages({ body: "m" }), notFound);
  await assert.rejects(client.createReceiver(name).receiveMessages(1), notFound);
  await assert.rejects(client.createReceiver(name).peekMessages(1), notFound);
  await assert.rejects(client.acceptSession(name, "s"), notFound);
  const topic = await newTopic(administration, []);
  await assert.rejects(client.createReceiver(topic, "nobody").receiveMessages(1), notFound);
});

test("a link whose entity is deleted under it ends with an error and its client goes on", async () => {
  const queue = await newQueue(administration);
  const sender = client.createSender(queue);
  await sender.sendMessages({ body: "m" });
  await administration.deleteQueue(queue);
  await assert.rejects(sender.sendMessages({ body: "m" }), { code: "MessagingEntityNotFound" });
  const other = await newQueue(administration);
  await client.createSender(other).sendMessages({ body: "fine" });
});

test("a wrong key is refused", async () => {
  const queue = await newQueue(administration);
  const wrong = connectionString.replace(/SharedAccessKey=[^;]+/, "SharedAccessKey=d3Jvbmc=");
  const stranger = openClient({ connectionString: wrong });
  await assert.rejects(stranger.createSender(queue).sendMessages({ body: "m" }), { code: "UnauthorizedAccess" });
});

test("a key without the right for it is refused, and one with it is not", async () => {
  const rules = ["Send", "Listen"].map((right) => ({
    claimType: "SharedAccessKey",
    accessRights: [right],
    keyName: right,
    primaryKey: Buffer.alloc(32, right).toString("base64"),
    secondaryKey: Buffer.alloc(32, right + "2").toString("base64"),
  }));
  const queue = await newQueue(administration, { authorizationRules: rules });
  const as = ({ keyName, primaryKey }) =>
    openClient({
      connectionString: connectionString
        .replace(/SharedAccessKeyName=[^;]+/, `SharedAccessKeyName=${keyName}`)
        .replace(/SharedAccessKey=[^;]+/, `SharedAccessKey=${primaryKey}`),
    });
  const [mayOnlySend, mayOnlyListen] = rules.map(as);
  const refused = { code: "UnauthorizedAccess" };
  await mayOnlySend.createSender(queue).sendMessages({ body: "m" });
  await assert.rejects(mayOnlySend.createReceiver(queue).receiveMessages(1), refused);
  await assert.rejects(mayOnlySend.createReceiver(queue).peekMessages(1), refused);
  await assert.rejects(mayOnlyListen.createSender(queue).sendMessages({ body: "m" }), refused);
  assert.equal((await take(mayOnlyListen.createReceiver(queue))).length, 1);
});

test("a message over the limit is refused with its own code and the link goes on", async () => {
  const queue = await newQueue(administration);
  const sender = client.createSender(queue);
  await assert.rejects(sender.sendMessages({ body: Buffer.alloc(300_000) }), { code: "MessageSizeExceeded" });
  await sender.sendMessages({ body: "small" });
  assert.equal((await take(client.createReceiver(queue))).length, 1);
});

test("a disabled entity is told as such", async () => {
  const queue = await administration.getQueue(await newQueue(administration));
  await administration.updateQueue({ ...queue, status: "SendDisabled" });
  const disabled = { code: "MessagingEntityDisabled" };
  await assert.rejects(client.createSender(queue.name).sendMessages({ body: "m" }), disabled);
  await administration.updateQueue({ ...queue, status: "ReceiveDisabled" });
  await client.createSender(queue.name).sendMessages({ body: "m" });
  await assert.rejects(client.createReceiver(queue.name).receiveMessages(1), disabled);
});

test("a wrong key is refused over HTTP too", async () => {
  const wrong = connectionString.replace(/SharedAccessKey=[^;]+/, "SharedAccessKey=d3Jvbmc=");
  await assert.rejects(openAdministration(wrong).getQueue("any"), { statusCode: 401 });
});
