package main

import (
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// aDay is a bit of everything, for a transport of its own.
func aDay(s *stage, client *azservicebus.Client) {
	queue, sessions := s.queue(admin.QueueProperties{}), sessionQueue(s)
	s.send(client, queue, "one", "two")
	receiver := s.receiver(client, queue)
	got := s.take(receiver, 2)
	equal([]string{"one", "two"}, bodies(got))
	check(receiver.RenewMessageLock(s, got[0], nil))
	s.complete(receiver, got[0])
	check(receiver.DeadLetterMessage(s, got[1], nil))
	equal([]string{"two"}, bodies(s.take(s.deadLetters(client, queue), 1)))
	large := strings.Repeat("x", 200_000)
	check(s.sender(client, queue).SendMessage(s, text(large), nil))
	equal([]string{large}, bodies(s.take(receiver, 1)))
	sendToSession(s, client, sessions, "a", "1")
	session := must(client.AcceptNextSessionForQueue(s, sessions, nil))
	check(session.SetSessionState(s, []byte("state"), nil))
	equal([]string{"1"}, bodies(s.take(session, 1)))
}

func init() {
	scenario("TLS", "AMQP and administration over TLS, with the certificate verified", func(s *stage) { aDay(s, s.tlsClient()) })

	scenario("TLS", "a certificate that is not trusted ends the connection", func(s *stage) {
		client := s.opened(s.variable("TLS"), &azservicebus.ClientOptions{RetryOptions: noRetries})
		err := s.sender(client, s.queue(admin.QueueProperties{})).SendMessage(s, text("secret"), nil)
		truth(err != nil, "it was sent")
		contains(err.Error(), "certificate")
	})

	scenario("WebSockets", "AMQP over WebSockets with TLS", func(s *stage) { aDay(s, s.webSocketClient()) })

	scenario("WebSockets", "AMQP over WebSockets without TLS, at the port of the connection string", func(s *stage) {
		aDay(s, s.webSocketClientTo(s.variable("PLAIN"), "ws"))
	})

	scenarioAlone("reconnect", "sender and receiver go on after the namespace was restarted", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.retryingClient()
		sender, receiver := s.sender(client, queue), s.receiver(client, queue)
		check(sender.SendMessage(s, text("before"), nil))
		held := s.take(receiver, 1)[0]
		check(sender.SendMessage(s, text("kept"), nil))
		s.restart()
		check(sender.SendMessage(s, text("after"), nil))
		got := s.take(receiver, 3)
		equal([]string{"before", "kept", "after"}, bodies(got))
		equal(*held.SequenceNumber, *got[0].SequenceNumber)
		s.complete(receiver, got...)
		equal(int64(0), must(s.administration().GetQueueRuntimeProperties(s, queue, nil)).TotalMessageCount)
	})

	scenarioAlone("reconnect", "a receiver that waits while the namespace restarts gets what comes then", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.retryingClient()
		receiver := s.receiver(client, queue)
		s.takeNone(receiver)
		came := s.arriving(receiver)
		s.restart()
		s.send(s.retryingClient(), queue, "after")
		equal("after", <-came)
	})

	scenarioAlone("reconnect", "a session receiver goes on with its session after a restart", func(s *stage) {
		queue, client := sessionQueue(s), s.retryingClient()
		sendToSession(s, client, queue, "a", "1")
		session := must(client.AcceptSessionForQueue(s, queue, "a", nil))
		check(session.SetSessionState(s, []byte("kept"), nil))
		s.take(session, 1)
		s.restart()
		equal("kept", string(must(session.GetSessionState(s, nil))))
		again := s.take(session, 1)
		equal([]string{"1"}, bodies(again))
		check(session.CompleteMessage(s, again[0], nil))
	})

	scenario("errors", "an entity that does not exist is not found", func(s *stage) {
		client := s.client()
		err := s.sender(client, fresh("nothing")).SendMessage(s, text("lost"), nil)
		equal(azservicebus.CodeNotFound, code(err))
		_, err = s.receiver(client, fresh("nothing")).ReceiveMessages(s, 1, nil)
		equal(azservicebus.CodeNotFound, code(err))
		_, err = client.AcceptNextSessionForQueue(s, fresh("nothing"), nil)
		equal(azservicebus.CodeNotFound, code(err))
	})

	scenario("errors", "a wrong key is unauthorized", func(s *stage) {
		forged := strings.Replace(s.variable("PLAIN"), "SharedAccessKey=", "SharedAccessKey=x", 1)
		client := s.opened(forged, &azservicebus.ClientOptions{RetryOptions: noRetries})
		err := s.sender(client, s.queue(admin.QueueProperties{})).SendMessage(s, text("forged"), nil)
		equal(azservicebus.CodeUnauthorizedAccess, code(err))
	})

	scenario("errors", "a key may do what its rights say", func(s *stage) {
		queue := s.queue(admin.QueueProperties{AuthorizationRules: []admin.AuthorizationRule{{
			KeyName: ptr("listener"), AccessRights: []admin.AccessRight{admin.AccessRightListen},
			PrimaryKey: ptr("c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U="), SecondaryKey: ptr("b3RoZXJvdGhlcm90aGVyb3RoZXJvdGhlcm90aGVyb3Q="),
		}}})
		endpoint, _, _ := strings.Cut(s.variable("PLAIN"), ";")
		client := s.opened(endpoint+";SharedAccessKeyName=listener;SharedAccessKey=c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U="+
			";UseDevelopmentEmulator=true", &azservicebus.ClientOptions{RetryOptions: noRetries})
		s.send(s.client(), queue, "for the listener")
		equal([]string{"for the listener"}, bodies(s.take(s.receiver(client, queue), 1)))
		equal(azservicebus.CodeUnauthorizedAccess, code(s.sender(client, queue).SendMessage(s, text("no"), nil)))
	})

	scenario("errors", "a disabled queue takes nothing and a deleted one is not found", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		sender := s.sender(client, queue)
		check(sender.SendMessage(s, text("before"), nil))
		shown := must(s.administration().GetQueue(s, queue, nil)).QueueProperties
		shown.Status = ptr(admin.EntityStatusDisabled)
		must(s.administration().UpdateQueue(s, queue, shown, nil))
		truth(sender.SendMessage(s, text("disabled"), nil) != nil, "a disabled queue took a message")
		must(s.administration().DeleteQueue(s, queue, nil))
		deadline := time.Now().Add(5 * time.Second)
		var err error
		for err = sender.SendMessage(s, text("gone"), nil); err == nil && time.Now().Before(deadline); {
			err = sender.SendMessage(s, text("gone"), nil)
		}
		contains(err.Error(), "amqp:not-found")
	})
}
