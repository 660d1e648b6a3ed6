// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"

	"maesh.dev/ichor/test/hollow/events"
)

var errEnough = errors.New("enough")

// read watches until it has seen count events after the hello, and gives their phases.
func read(t *testing.T, r *events.Ring, req *machine.EventsRequest, count int) []string {
	t.Helper()
	var seen []string
	hello := true
	err := r.Watch(t.Context(), req, func(e *machine.Event) error {
		if hello {
			hello = false
			if e.GetData().GetTypeUrl() != "" || e.GetActorId() != req.GetWithActorId() {
				t.Errorf("hello: %v", e)
			}
			if count == 0 {
				return errEnough
			}
			return nil
		}
		if e.GetData().GetTypeUrl() != "talos/runtime/machine.PhaseEvent" {
			t.Errorf("type URL %q", e.GetData().GetTypeUrl())
		}
		payload := &machine.PhaseEvent{}
		e.GetData().TypeUrl = "type.googleapis.com/machine.PhaseEvent"
		if err := e.GetData().UnmarshalTo(payload); err != nil {
			return err
		}
		seen = append(seen, payload.GetPhase())
		if len(seen) == count {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("watch: %v, saw %q", err, seen)
	}
	return seen
}

func publish(r *events.Ring, actor string, from, to int) {
	ctx := context.Background()
	if actor != "" {
		ctx = events.WithActor(ctx, actor)
	}
	for i := from; i < to; i++ {
		r.Publish(ctx, &machine.PhaseEvent{Phase: fmt.Sprint(i)})
	}
}

func TestAWatcherStartsWhereItAsks(t *testing.T) {
	t.Parallel()
	r := events.NewRing()
	publish(r, "", 0, 3)
	publish(r, "me", 3, 5)
	for _, c := range []struct {
		name string
		req  *machine.EventsRequest
		want []string
	}{
		{"at the beginning", &machine.EventsRequest{TailEvents: -1}, []string{"0", "1", "2", "3", "4"}},
		{"at the last two", &machine.EventsRequest{TailEvents: 2}, []string{"3", "4"}},
		{"at one actor's", &machine.EventsRequest{TailEvents: -1, WithActorId: "me"}, []string{"3", "4"}},
		{"some time ago", &machine.EventsRequest{TailSeconds: 60}, []string{"0", "1", "2", "3", "4"}},
		{"now", &machine.EventsRequest{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, read(t, r, c.req, len(c.want))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
	if err := r.Watch(t.Context(), &machine.EventsRequest{TailEvents: 1, TailSeconds: 1}, func(*machine.Event) error { return nil }); !errors.Is(err, events.ErrTail) {
		t.Errorf("two ways to start: %v", err)
	}
	if err := r.Watch(t.Context(), &machine.EventsRequest{TailId: "?"}, func(*machine.Event) error { return nil }); err == nil {
		t.Error("a broken id was accepted")
	}
}

func TestTheRingForgetsAllButTheLastThousand(t *testing.T) {
	t.Parallel()
	r := events.NewRing()
	publish(r, "", 0, 1500)
	seen := read(t, r, &machine.EventsRequest{TailEvents: -1}, 1000)
	if seen[0] != "500" || seen[999] != "1499" {
		t.Errorf("from %s to %s", seen[0], seen[999])
	}
}

func TestAWatcherThatIsTooSlowIsLetGo(t *testing.T) {
	t.Parallel()
	r := events.NewRing()
	publish(r, "", 0, 1)
	sent := 0
	err := r.Watch(t.Context(), &machine.EventsRequest{TailEvents: -1}, func(*machine.Event) error {
		if sent++; sent == 2 {
			publish(r, "", 1, 3000)
		}
		return nil
	})
	if err != nil || sent != 2 {
		t.Errorf("%v after %d events", err, sent)
	}
}
