// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// loaders is how many clients enter machines at a time.
	loaders = 10
	// share is how many machines a side enters before it is the other's turn.
	share = 500
	// count is the cluster's number of control planes: the most that Ichor allows.
	count = 9
)

// createCluster makes a side's cluster.
func createCluster(ctx context.Context, w *world, s *side) error {
	admin, err := w.callers(w.adminPair, 1)
	if err != nil {
		return err
	}
	body, err := json.Marshal(newCluster(s.group, count))
	if err != nil {
		return err
	}
	if _, err := admin[0].call(ctx, http.MethodPost, s.clusters(), body); err != nil {
		return fmt.Errorf("make cluster of %s: %w", s.name, err)
	}
	return nil
}

// loaded is how long entering the machines took.
type loaded struct{ create, status timing }

// enter creates machines and writes their status, as the controller does.
func enter(ctx context.Context, clients []*caller, s *side, from, to int, into *loaded) error {
	bodies, err := encoded(from, to, func(n int) any { return newMachine(s.group, n) })
	if err != nil {
		return err
	}
	created := make([][]byte, to-from)
	took, err := together(ctx, clients, to-from, func(ctx context.Context, client *caller, i int) (err error) {
		created[i], err = client.call(ctx, http.MethodPost, s.machines(), bodies[i])
		return err
	})
	if err != nil {
		return fmt.Errorf("create machines of %s: %w", s.name, err)
	}
	into.create.add(took)
	for i, answer := range created {
		var machine v1alpha1.TalosMachine
		if err := json.Unmarshal(answer, &machine); err != nil {
			return fmt.Errorf("read machine of %s: %w", s.name, err)
		}
		machine.Status = seen(from + i)
		if bodies[i], err = json.Marshal(&machine); err != nil {
			return err
		}
	}
	if took, err = together(ctx, clients, to-from, func(ctx context.Context, client *caller, i int) error {
		_, err := client.call(ctx, http.MethodPut, s.machines()+"/"+nameOf(from+i)+"/status", bodies[i])
		return err
	}); err != nil {
		return fmt.Errorf("write status of machines of %s: %w", s.name, err)
	}
	into.status.add(took)
	return nil
}

func encoded(from, to int, object func(n int) any) ([][]byte, error) {
	var out [][]byte
	for n := from; n < to; n++ {
		body, err := json.Marshal(object(n))
		if err != nil {
			return nil, err
		}
		out = append(out, body)
	}
	return out, nil
}

// load enters all machines of all sides in turns.
func load(ctx context.Context, w *world, machines int) (map[*side]*loaded, error) {
	out := map[*side]*loaded{}
	clients, err := w.callers(w.machine, loaders)
	if err != nil {
		return nil, err
	}
	for _, s := range w.sides {
		out[s] = &loaded{}
		if err := createCluster(ctx, w, s); err != nil {
			return nil, err
		}
	}
	for from := 0; from < machines; from += share {
		for _, s := range w.sides {
			if err := enter(ctx, clients, s, from, min(from+share, machines), out[s]); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
