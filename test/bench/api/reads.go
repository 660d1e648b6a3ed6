// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	getters    = 10
	getsAtOnce = 1000
	pageSize   = 500
)

// getSome reads machines one by one, all over the fleet.
func getSome(ctx context.Context, clients []*caller, s *side, machines, round int) (timing, error) {
	return together(ctx, clients[:getters], getsAtOnce, func(ctx context.Context, client *caller, i int) error {
		n := (i*7919 + round*104729) % machines
		_, err := client.drain(ctx, s.machines()+"/"+nameOf(n))
		return err
	})
}

// listAll reads all machines in one list.
func listAll(ctx context.Context, client *caller, s *side) (timing, error) {
	return together(ctx, []*caller{client}, 1, func(ctx context.Context, client *caller, _ int) error {
		_, err := client.drain(ctx, s.machines())
		return err
	})
}

// listPages reads all machines page by page.
func listPages(ctx context.Context, client *caller, s *side, machines int) (timing, error) {
	return together(ctx, []*caller{client}, 1, func(ctx context.Context, client *caller, _ int) error {
		next, pages := "", 0
		for {
			page, err := client.call(ctx, http.MethodGet, fmt.Sprintf("%s?limit=%d&continue=%s", s.machines(), pageSize, url.QueryEscape(next)), nil)
			if err != nil {
				return err
			}
			pages++
			if next, err = continuation(page); err != nil {
				return err
			}
			if next == "" {
				break
			}
		}
		if want := (machines + pageSize - 1) / pageSize; pages != want {
			return fmt.Errorf("list machines of %s: %d pages, want %d", s.name, pages, want)
		}
		return nil
	})
}

// continuation reads the token of the next page and leaves the items alone, which would take longer than the page did: of
// typed lists the metadata comes before them, of custom resources after.
func continuation(page []byte) (string, error) {
	rest, _, found := bytes.Cut(page, []byte(`"items":[`))
	if found && bytes.Contains(rest, []byte(`"metadata":`)) {
		rest = append(bytes.Clone(rest), `"items":[]}`...)
	} else if i := bytes.LastIndex(page, []byte(`],"kind":`)); i >= 0 {
		rest = append([]byte("{"), page[i+len("],"):]...)
	}
	var list struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	if err := json.Unmarshal(rest, &list); err != nil {
		return "", fmt.Errorf("read page: %w", err)
	}
	return list.Metadata.Continue, nil
}
