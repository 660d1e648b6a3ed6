// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// thousands is the text of a list of so many numbers.
func thousands(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }

func TestWhatMayBeStored(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"a comparison":               {text: "object.status.ceph.health == 'HEALTH_OK'"},
		"a field that should be one": {text: "object.status.ready"},
		"an optional field":          {text: "object.?status.?ready.orValue(false)"},
		"Kubernetes' own functions":  {text: "quantity(object.status.free).isGreaterThan(quantity('10Gi'))"},
		"all of a list":              {text: "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')"},
		"a number":                   {text: "1 + 1", want: "of type int"},
		"an unknown variable":        {text: "oldObject.status.ready", want: "undeclared reference"},
		"nonsense":                   {text: "object.", want: "Syntax error"},
		"nothing":                    {text: "", want: "Syntax error"},
		"one that never ends in time": {
			text: thousands(60) + ".map(a, " + thousands(60) + ".map(b, " + thousands(60) + ".map(c, " + thousands(60) + "))).size() > 0", want: "costs too much",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Check(tc.text)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Check(%.80s): want %q, got %v", tc.text, tc.want, err)
			}
		})
	}
}

func TestHolds(t *testing.T) {
	t.Parallel()
	items := make([]any, 5000)
	for i := range items {
		items[i] = int64(i)
	}
	object := map[string]any{
		"metadata": map[string]any{"generation": int64(3)},
		"spec":     map[string]any{"password": "hunter2", "items": items},
		"status": map[string]any{
			"health": "HEALTH_OK", "ready": true, "nothing": nil, "free": "20Gi",
			"conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
		},
	}
	for name, tc := range map[string]struct {
		text         string
		holds, never bool
		want         string
	}{
		"true":                       {text: "object.status.health == 'HEALTH_OK'", holds: true},
		"false":                      {text: "object.status.health == 'HEALTH_WARN'"},
		"a boolean field":            {text: "object.status.ready", holds: true},
		"numbers are whole ones":     {text: "object.metadata.generation == 3", holds: true},
		"a quantity":                 {text: "quantity(object.status.free).isGreaterThan(quantity('10Gi'))", holds: true},
		"a condition":                {text: "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", holds: true},
		"a field that isn't there":   {text: "object.status.phase == 'Ready'", want: `no field "phase"`},
		"that one, allowed for":      {text: "object.?status.?phase.orValue('') == 'Ready'"},
		"null":                       {text: "object.status.nothing", want: "null"},
		"a text":                     {text: "object.status.health", never: true, want: "of type string"},
		"a comparison that can't be": {text: "object.status.health > 3", want: "doesn't take"},
		"a text that is no number":   {text: "int(object.spec.password) > 3", want: "is no number"},
		"a key that is a value":      {text: "object.status[object.spec.password] == 1", want: "fails on what the object has"},
		"more than it may cost":      {text: "object.spec.items.all(a, object.spec.items.exists(b, b == a))", never: true, want: "costs more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := Compile(tc.text)
			if err != nil {
				t.Fatal(err)
			}
			holds, err := e.Holds(t.Context(), object)
			if holds != tc.holds || (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: want %t %q, got %t %v", tc.text, tc.holds, tc.want, holds, err)
			}
			var never *NeverError
			if errors.As(err, &never) != tc.never {
				t.Errorf("%s: never is %t, want %t (%v)", tc.text, !tc.never, tc.never, err)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: the error quotes the object: %v", tc.text, err)
			}
		})
	}
}

func TestWhatCanNotBeUsed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1", "object.", "x.y"} {
		if _, err := Compile(text); err == nil {
			t.Errorf("Compile(%q) has no error", text)
		}
	}
	e, err := Compile("object.items.all(a, object.items.exists(b, b == a + 1))")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Holds(ctx, map[string]any{"items": []any{int64(1)}}); !errors.Is(err, context.Canceled) {
		t.Errorf("want the context's error, got %v", err)
	}
}
