package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func sessionQueue(s *stage) string { return s.queue(admin.QueueProperties{RequiresSession: ptr(true)}) }

func sendToSession(s *stage, client *azservicebus.Client, entity, session string, texts ...string) {
	sender := s.sender(client, entity)
	for _, body := range texts {
		check(sender.SendMessage(s, &azservicebus.Message{Body: []byte(body), SessionID: &session}, nil))
	}
}

func listed(s *stage, pager *runtime.Pager[azservicebus.ListSessionsResponse]) []string {
	found := []string{}
	for pager.More() {
		found = append(found, must(pager.NextPage(s)).Sessions...)
	}
	slices.Sort(found)
	return found
}

func init() {
	scenario("sessions", "a session is taken by its name and received in order", func(s *stage) {
		queue, client := sessionQueue(s), s.client()
		sendToSession(s, client, queue, "a", "1", "2", "3")
		sendToSession(s, client, queue, "b", "other")
		session := must(client.AcceptSessionForQueue(s, queue, "a", nil))
		equal("a", session.SessionID())
		got := s.take(session, 3)
		equal([]string{"1", "2", "3"}, bodies(got))
		equal("a", *got[0].SessionID)
		for _, message := range got {
			check(session.CompleteMessage(s, message, nil))
		}
		s.takeNone(session)
	})

	scenario("sessions", "the next session is any that is free", func(s *stage) {
		queue, client := sessionQueue(s), s.client()
		sendToSession(s, client, queue, "a", "1")
		sendToSession(s, client, queue, "b", "2")
		first := must(client.AcceptNextSessionForQueue(s, queue, nil))
		second := must(client.AcceptNextSessionForQueue(s, queue, nil))
		names := []string{first.SessionID(), second.SessionID()}
		slices.Sort(names)
		equal([]string{"a", "b"}, names)
	})

	scenario("sessions", "a session that another receiver holds cannot be taken", func(s *stage) {
		queue, client := sessionQueue(s), s.client()
		held := must(client.AcceptSessionForQueue(s, queue, "a", nil))
		_, err := s.client().AcceptSessionForQueue(s, queue, "a", nil)
		truth(err != nil, "two receivers hold one session")
		contains(err.Error(), "session-cannot-be-locked")
		check(held.Close(s))
		must(s.client().AcceptSessionForQueue(s, queue, "a", nil))
	})

	scenario("sessions", "waiting for a session ends with the time that the caller gives", func(s *stage) {
		queue, client := sessionQueue(s), s.client()
		waiting, cancel := context.WithTimeout(s, 2*time.Second)
		defer cancel()
		started := time.Now()
		_, err := client.AcceptNextSessionForQueue(waiting, queue, nil)
		truth(err != nil, "a session was there")
		waited := time.Since(started)
		truth(waited > 1900*time.Millisecond && waited < 3*time.Second, "it waited "+waited.String())
		sendToSession(s, client, queue, "a", "1")
		equal("a", must(client.AcceptNextSessionForQueue(s, queue, nil)).SessionID())
	})

	scenario("sessions", "a waiting receiver gets the session that comes", func(s *stage) {
		queue, client := sessionQueue(s), s.client()
		came := make(chan string)
		go func() {
			session, err := client.AcceptNextSessionForQueue(s, queue, nil)
			if err != nil {
				came <- err.Error()
				return
			}
			came <- session.SessionID()
		}()
		sendToSession(s, s.client(), queue, "late", "1")
		equal("late", <-came)
	})

	scenario("sessions", "session state is kept and cleared", func(s *stage) {
		queue, client := sessionQueue(s), s.client()
		session := must(client.AcceptSessionForQueue(s, queue, "a", nil))
		equal(0, len(must(session.GetSessionState(s, nil))))
		check(session.SetSessionState(s, []byte("half way"), nil))
		check(session.Close(s))
		again := must(s.client().AcceptSessionForQueue(s, queue, "a", nil))
		equal("half way", string(must(again.GetSessionState(s, nil))))
		check(again.SetSessionState(s, nil, nil))
		equal(0, len(must(again.GetSessionState(s, nil))))
	})

	scenario("lock renewal", "a renewed session lock ends later", func(s *stage) {
		queue, client := sessionQueue(s), s.client()
		session := must(client.AcceptSessionForQueue(s, queue, "a", nil))
		before := session.LockedUntil()
		time.Sleep(20 * time.Millisecond)
		check(session.RenewSessionLock(s, nil))
		truth(session.LockedUntil().After(before), "the lock does not end later")
	})

	scenario("deferral", "deferring, dead-lettering and peeking work within a session", func(s *stage) {
		queue, client := sessionQueue(s), s.client()
		sendToSession(s, client, queue, "a", "defer", "bury", "abandon")
		session := must(client.AcceptSessionForQueue(s, queue, "a", nil))
		equal(3, len(must(session.PeekMessages(s, 9, nil))))
		got := s.take(session, 3)
		check(session.DeferMessage(s, got[0], nil))
		check(session.DeadLetterMessage(s, got[1], nil))
		check(session.AbandonMessage(s, got[2], nil))
		equal([]string{"abandon"}, bodies(s.take(session, 1)))
		deferred := must(session.ReceiveDeferredMessages(s, []int64{*got[0].SequenceNumber}, nil))
		equal([]string{"defer"}, bodies(deferred))
		check(session.CompleteMessage(s, deferred[0], nil))
		equal([]string{"bury"}, bodies(s.take(s.deadLetters(client, queue), 1)))
	})

	scenario("sessions", "sessions are listed: those with messages and those with a state", func(s *stage) {
		queue, client := sessionQueue(s), s.client()
		equal([]string{}, listed(s, client.NewListSessionsForQueuePager(queue, nil)))
		sendToSession(s, client, queue, "with-messages", "1")
		session := must(client.AcceptSessionForQueue(s, queue, "with-state", nil))
		start := time.Now().Add(-time.Minute)
		check(session.SetSessionState(s, []byte("state"), nil))
		equal([]string{"with-messages", "with-state"}, listed(s, client.NewListSessionsForQueuePager(queue, nil)))
		options := &azservicebus.ListSessionsOptions{SessionStateUpdatedAfter: &start}
		equal([]string{"with-state"}, listed(s, client.NewListSessionsForQueuePager(queue, options)))
		options.SessionStateUpdatedAfter = ptr(time.Now().Add(time.Hour))
		equal([]string{}, listed(s, client.NewListSessionsForQueuePager(queue, options)))
	})

	scenario("sessions", "more sessions than a page holds are all listed", func(s *stage) {
		queue, client := sessionQueue(s), s.client()
		sender := s.sender(client, queue)
		batch := must(sender.NewMessageBatch(s, nil))
		wanted := []string{}
		for number := range 250 {
			wanted = append(wanted, fmt.Sprintf("session-%03d", number))
			check(batch.AddMessage(&azservicebus.Message{SessionID: ptr(wanted[number])}, nil))
		}
		check(sender.SendMessageBatch(s, batch, nil))
		equal(wanted, listed(s, client.NewListSessionsForQueuePager(queue, nil)))
	})

	scenario("sessions", "sessions of a subscription are taken and listed", func(s *stage) {
		topic, client := s.topic(admin.TopicProperties{}), s.client()
		must(s.administration().CreateSubscription(s, topic, "sub", &admin.CreateSubscriptionOptions{
			Properties: &admin.SubscriptionProperties{RequiresSession: ptr(true)},
		}))
		sendToSession(s, client, topic, "a", "1")
		equal([]string{"a"}, listed(s, client.NewListSessionsForSubscriptionPager(topic, "sub", nil)))
		session := must(client.AcceptNextSessionForSubscription(s, topic, "sub", nil))
		equal([]string{"1"}, bodies(s.take(session, 1)))
	})

	scenarioAlone("sessions", "a session lock that ended is lost, and its messages come again", func(s *stage) {
		queue, client := sessionQueue(s), s.client()
		sendToSession(s, client, queue, "a", "1")
		session := must(client.AcceptSessionForQueue(s, queue, "a", nil))
		s.take(session, 1)
		s.passTime("61")
		equal(azservicebus.CodeLockLost, code(session.RenewSessionLock(s, nil)))
		again := must(s.client().AcceptSessionForQueue(s, queue, "a", nil))
		got := s.take(again, 1)
		equal([]string{"1"}, bodies(got))
		equal(uint32(2), got[0].DeliveryCount)
		check(again.CompleteMessage(s, got[0], nil))
	})
}
