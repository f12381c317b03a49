// What the Go SDK does against a twinbus namespace. The driver describes the namespace in the environment:
//
// TWINBUS_PLAIN         connection string of the port without TLS
// TWINBUS_TLS           connection string of the TLS port, which speaks AMQP, WebSocket and HTTPS
// TWINBUS_AUTHORITY     file of the certificate authority that the TLS port's certificate comes from
// TWINBUS_ALONE_PLAIN   connection string of a namespace whose clock the scenarios move and which they restart
// TWINBUS_ALONE_TLS     its TLS port
// TWINBUS_ALONE_AUTHORITY  its authority
// TWINBUS_CONTROL       where the driver does that: POST /clock/SECONDS, POST /restart
//
// Every scenario's outcome is a line of JSON on standard output. They run side by side, except those that move the clock or
// restart the namespace.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

const (
	scenarioTimeout = 30 * time.Second
	sideBySide      = 6
)

type outcome struct {
	Feature  string  `json:"feature"`
	Scenario string  `json:"scenario"`
	Outcome  string  `json:"outcome"`
	Reason   string  `json:"reason"`
	Seconds  float64 `json:"seconds"`
}

type script struct {
	feature, name string
	isAlone       bool
	play          func(*stage)
}

var scripts []script

// scenario adds one that may run beside others.
func scenario(feature, name string, play func(*stage)) {
	scripts = append(scripts, script{feature, name, false, play})
}

// scenarioAlone adds one that has a namespace of its own and runs while no other of its kind does.
func scenarioAlone(feature, name string, play func(*stage)) {
	scripts = append(scripts, script{feature, name, true, play})
}

func main() {
	var writing sync.Mutex
	report := func(played outcome) {
		line, err := json.Marshal(played)
		if err != nil {
			panic(err)
		}
		writing.Lock()
		defer writing.Unlock()
		fmt.Println(string(line))
	}
	together, alone := make(chan script, len(scripts)), make(chan script, len(scripts))
	wanted := os.Getenv("TWINBUS_SCENARIO")
	for _, next := range scripts {
		switch {
		case !strings.Contains(next.name, wanted):
		case next.isAlone:
			alone <- next
		default:
			together <- next
		}
	}
	close(together)
	close(alone)
	var players sync.WaitGroup
	for player := range sideBySide + 1 {
		players.Go(func() {
			source := together
			if player == 0 {
				source = alone
			}
			for next := range source {
				report(next.run())
			}
		})
	}
	players.Wait()
}

func (s script) run() (played outcome) {
	played = outcome{Feature: s.feature, Scenario: s.name, Outcome: "pass"}
	started := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), scenarioTimeout)
	on := &stage{Context: ctx, isAlone: s.isAlone}
	defer func() {
		if problem := recover(); problem != nil {
			played.Outcome = "fail"
			played.Reason = fmt.Sprint(problem)
			if _, isExpected := problem.(expectation); !isExpected {
				played.Reason += "\n" + string(debug.Stack())
			}
		}
		on.close()
		cancel()
		played.Seconds = time.Since(started).Seconds()
	}()
	s.play(on)
	return played
}

// expectation is what a scenario wanted and did not get.
type expectation string

func fail(format string, values ...any) {
	stack := strings.Split(string(debug.Stack()), "\n")
	where := ""
	for _, line := range stack {
		if strings.Contains(line, "/") && strings.Contains(line, ".go:") &&
			!strings.Contains(line, "suite.go") && !strings.Contains(line, "runtime/") {
			where = line[strings.LastIndex(line, "/")+1:]
			break
		}
	}
	panic(expectation(fmt.Sprintf(format, values...) + " (" + where + ")"))
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func equal(wanted, got any) {
	if !reflect.DeepEqual(wanted, got) {
		fail("wanted %#v, got %#v", wanted, got)
	}
}

func truth(holds bool, what string) {
	if !holds {
		fail("%s", what)
	}
}

func contains(text, part string) {
	if !strings.Contains(text, part) {
		fail("%q is not in %q", part, text)
	}
}

func ptr[T any](value T) *T { return &value }
