package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"
)

const wait = 20 * time.Second

type script struct {
	feature, name string
	play          func(context.Context)
}

var scripts []script

func scenario(feature, name string, play func(context.Context)) {
	scripts = append(scripts, script{feature, name, play})
}

// playAll plays one after another and prints a line of JSON for each.
func playAll() {
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
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	defer func() {
		if fault := recover(); fault != nil {
			reason = fmt.Sprint(fault)
		}
	}()
	each.play(ctx)
	return ""
}

func check(err error) {
	if err != nil {
		panic(err.Error())
	}
}

func same(expected, actual any) {
	if !reflect.DeepEqual(expected, actual) {
		panic(fmt.Sprintf("expected %v, got %v", expected, actual))
	}
}

func setting(name string) string {
	value, is := os.LookupEnv(name)
	if !is {
		panic(name + " is not set")
	}
	return value
}

// next is what a handler put there.
func next[T any](ctx context.Context, arrived <-chan T) T {
	select {
	case value := <-arrived:
		return value
	case <-ctx.Done():
		panic("no message came")
	}
}
