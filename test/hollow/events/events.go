// SPDX-License-Identifier: Apache-2.0

// Package events is Talos' stream of runtime events: a ring of the last thousand, lost at reboot, that any number of
// watchers read at their own pace (Talos: internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_events.go).
package events

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/xid"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// capacity is the number of events a node remembers.
const capacity = 1000

type event struct {
	id      xid.ID
	actor   string
	payload proto.Message
}

// wire is the event as the API sends it; the type URL has Talos' own prefix.
func (e event) wire() (*machine.Event, error) {
	out := &machine.Event{Id: e.id.String(), ActorId: e.actor, Data: &anypb.Any{}}
	if e.payload != nil {
		value, err := proto.Marshal(e.payload)
		if err != nil {
			return nil, err
		}
		out.Data = &anypb.Any{TypeUrl: "talos/runtime/" + string(e.payload.ProtoReflect().Descriptor().FullName()), Value: value}
	}
	return out, nil
}

// Ring is the stream of one boot.
type Ring struct {
	mu sync.Mutex
	// kept are the last events; first is the position of kept[0] in all that were ever published.
	kept  []event
	first int
	// more is closed and replaced when an event is published.
	more chan struct{}
}

// NewRing makes an empty stream.
func NewRing() *Ring { return &Ring{more: make(chan struct{})} }

type actorKey struct{}

// WithActor marks the events published with the context as caused by the call that was given this id.
func WithActor(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, actorKey{}, id)
}

// Publish adds an event.
func (r *Ring) Publish(ctx context.Context, payload proto.Message) {
	actor, _ := ctx.Value(actorKey{}).(string)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = append(r.kept, event{id: xid.New(), actor: actor, payload: payload})
	if len(r.kept) > capacity {
		drop := len(r.kept) - capacity
		r.kept = append([]event(nil), r.kept[drop:]...)
		r.first += drop
	}
	close(r.more)
	r.more = make(chan struct{})
}

// ErrTail tells that more than one way of choosing the first event was asked for.
var ErrTail = errors.New("only one of tail_events, tail_id and tail_seconds may be given")

// Watch sends the hello event, then what the request asks for, then each new event, until the context ends. It returns
// nil when the node forgot events faster than the watcher read them, as Talos does.
func (r *Ring) Watch(ctx context.Context, req *machine.EventsRequest, send func(*machine.Event) error) error {
	hello, err := event{id: xid.New(), actor: req.GetWithActorId()}.wire()
	if err != nil {
		return err
	}
	if err := send(hello); err != nil {
		return err
	}
	position, err := r.start(req)
	if err != nil {
		return err
	}
	for {
		batch, next, more, lost := r.read(position)
		if lost {
			return nil
		}
		for _, e := range batch {
			if actor := req.GetWithActorId(); actor != "" && e.actor != actor {
				continue
			}
			out, err := e.wire()
			if err != nil {
				return err
			}
			if err := send(out); err != nil {
				return err
			}
		}
		position = next
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-more:
		}
	}
}

// start finds the position of the first event that the request wants.
func (r *Ring) start(req *machine.EventsRequest) (int, error) {
	chosen := 0
	for _, set := range []bool{req.GetTailEvents() != 0, req.GetTailId() != "", req.GetTailSeconds() != 0} {
		if set {
			chosen++
		}
	}
	if chosen > 1 {
		return 0, ErrTail
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.first + len(r.kept)
	switch {
	case req.GetTailEvents() < 0:
		return r.first, nil
	case req.GetTailEvents() > 0:
		return max(r.first, end-int(req.GetTailEvents())), nil
	case req.GetTailId() != "":
		id, err := xid.FromString(req.GetTailId())
		if err != nil {
			return 0, errors.New("error parsing tail_id: " + err.Error())
		}
		return r.firstWhere(func(e event) bool { return e.id.Compare(id) > 0 }), nil
	case req.GetTailSeconds() != 0:
		since := time.Now().Add(-time.Duration(req.GetTailSeconds()) * time.Second)
		return r.firstWhere(func(e event) bool { return e.id.Time().After(since) }), nil
	}
	return end, nil
}

func (r *Ring) firstWhere(match func(event) bool) int {
	for i, e := range r.kept {
		if match(e) {
			return r.first + i
		}
	}
	return r.first + len(r.kept)
}

func (r *Ring) read(position int) (batch []event, next int, more <-chan struct{}, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if position < r.first {
		return nil, 0, nil, true
	}
	return r.kept[position-r.first:], r.first + len(r.kept), r.more, false
}
