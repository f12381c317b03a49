// Package scenarios plays scenarios one after another and prints a line of JSON for each.
package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"
)

// Wait is how long a scenario may take.
const Wait = 20 * time.Second

type script struct {
	feature, name string
	play          func(context.Context)
}

var scripts []script

// Add a scenario.
func Add(feature, name string, play func(context.Context)) {
	scripts = append(scripts, script{feature, name, play})
}

// PlayAll plays them.
func PlayAll() {
	for _, each := range scripts {
		if !strings.Contains(each.name, os.Getenv("TWINBUS_ONLY")) {
			continue
		}
		said := map[string]string{"scenario": each.name, "outcome": "pass", "reason": playOne(each)}
		if said["reason"] != "" {
			said["outcome"] = "fail"
		}
		line, _ := json.Marshal(said)
		fmt.Printf("{\"feature\": %q, %s\n", each.feature, line[1:])
	}
}

func playOne(each script) (reason string) {
	ctx, cancel := context.WithTimeout(context.Background(), Wait)
	defer cancel()
	defer func() {
		if fault := recover(); fault != nil {
			reason = fmt.Sprint(fault)
		}
	}()
	each.play(ctx)
	return ""
}

// Check panics if there is an error.
func Check(err error) {
	if err != nil {
		panic(err.Error())
	}
}

// Same panics unless both are equal.
func Same(expected, actual any) {
	if !reflect.DeepEqual(expected, actual) {
		panic(fmt.Sprintf("expected %v, got %v", expected, actual))
	}
}

// Setting is a variable of the environment.
func Setting(name string) string {
	value, is := os.LookupEnv(name)
	if !is {
		panic(name + " is not set")
	}
	return value
}

// Next is what a handler put there.
func Next[T any](ctx context.Context, arrived <-chan T) T {
	select {
	case value := <-arrived:
		return value
	case <-ctx.Done():
		panic("no message came")
	}
}
