// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"context"
	"errors"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"charm.land/huh/v2"
	"github.com/google/go-cmp/cmp"
)

func form() []Page {
	return []Page{
		{Title: "Role", Questions: []Question{
			{Key: "role", Title: "What does it become?", Options: []Option{{"control plane", "controlplane"}, {"worker", "worker"}}, Default: Always("worker")},
			{Key: "name", Title: "Hostname", DependsOn: "role", Default: func(answers Answers) string { return answers["role"] + "-1" }},
		}},
		{Title: "Disk", Questions: []Question{
			{Key: "disk", Title: "Where does it install?", Options: []Option{{"disk A", "a"}, {"disk B", "b"}}},
		}},
		{Title: "Volume", When: func(answers Answers) bool { return answers["disk"] == "b" }, Questions: []Question{
			{Key: "volume", Title: "Volume's name", Check: func(answer string) error {
				if answer == "" {
					return errors.New("a volume needs a name")
				}
				return nil
			}},
		}},
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, typed string
		want        Answers
		says        string
		err         error
	}{
		{"empty lines take the defaults, but where there is none", "\n\n\n1\n", Answers{"role": "worker", "name": "worker-1", "disk": "a"}, "choose one", nil},
		{"a default follows an earlier answer", "1\n\n1\n", Answers{"role": "controlplane", "name": "controlplane-1", "disk": "a"}, "Answer [controlplane-1]", nil},
		{"a page that doesn't apply isn't asked", "\nhost\n2\n\nvol\n", Answers{"role": "worker", "name": "host", "disk": "b", "volume": "vol"}, "a volume needs a name", nil},
		{"a number out of range is asked again", "3\n2\n\n1\n", Answers{"role": "worker", "name": "worker-1", "disk": "a"}, `"3" is no number from 1 to 2`, nil},
		{"the end of the input leaves the form", "1\n", nil, "", ErrAborted},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			got, err := NewLines(strings.NewReader(test.typed), &out).Ask(t.Context(), form())
			if !errors.Is(err, test.err) {
				t.Fatalf("error %v, want %v; output:\n%s", err, test.err, out.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
			if !strings.Contains(out.String(), test.says) {
				t.Errorf("output doesn't say %q:\n%s", test.says, out.String())
			}
		})
	}
}

func TestLinesConfirmIsNoUnlessYes(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]bool{"y\n": true, "YES\n": true, "\n": false, "n\n": false, "sure\n": false} {
		got, err := NewLines(strings.NewReader(typed), io.Discard).Confirm(t.Context(), "Wipe?")
		if err != nil || got != want {
			t.Errorf("answer %q: %v, %v; want %v", typed, got, err, want)
		}
	}
}

func TestLinesEndWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	never, writer := io.Pipe()
	t.Cleanup(func() { _ = writer.Close() })
	interrupted := errors.New("interrupted")
	cancel(interrupted)
	if _, err := NewLines(never, io.Discard).Ask(ctx, form()); !errors.Is(err, interrupted) {
		t.Errorf("error %v, want %v", err, interrupted)
	}
}

// drive runs a form with keys pressed one after the other, as the terminal's program would.
func drive(form *huh.Form, keys ...tea.KeyPressMsg) {
	settle(form, form.Init())
	for _, key := range keys {
		_, command := form.Update(key)
		settle(form, command)
	}
}

// settle feeds the messages of commands back until there are none left. A cursor's blink is not run: it only waits.
func settle(form *huh.Form, command tea.Cmd) {
	queue := []tea.Cmd{command}
	for steps := 0; len(queue) > 0 && steps < 500; steps++ {
		next := queue[0]
		queue = queue[1:]
		if next == nil || isBlink(next) {
			continue
		}
		switch message := next().(type) {
		case tea.BatchMsg:
			queue = append(queue, message...)
		case nil:
		default:
			if commands, ok := sequence(message); ok {
				queue = append(commands, queue...)
				continue
			}
			_, command := form.Update(message)
			queue = append(queue, command)
		}
	}
}

func isBlink(command tea.Cmd) bool {
	return strings.Contains(runtime.FuncForPC(reflect.ValueOf(command).Pointer()).Name(), "/cursor.")
}

// sequence unpacks tea.Sequence, whose message has no exported type.
func sequence(message tea.Msg) ([]tea.Cmd, bool) {
	value := reflect.ValueOf(message)
	if value.Kind() != reflect.Slice || value.Type().Elem() != reflect.TypeFor[tea.Cmd]() {
		return nil, false
	}
	commands := make([]tea.Cmd, value.Len())
	for i := range commands {
		commands[i], _ = value.Index(i).Interface().(tea.Cmd)
	}
	return commands, true
}

func press(text string) []tea.KeyPressMsg {
	var keys []tea.KeyPressMsg
	for _, letter := range text {
		keys = append(keys, tea.KeyPressMsg{Code: letter, Text: string(letter)})
	}
	return keys
}

var (
	enter = tea.KeyPressMsg{Code: tea.KeyEnter}
	down  = tea.KeyPressMsg{Code: tea.KeyDown}
)

func TestPages(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		keys []tea.KeyPressMsg
		want Answers
		done bool
	}{
		{"enter takes what is preselected, a choice without that must be made", []tea.KeyPressMsg{enter, enter, enter, down, enter}, Answers{"role": "worker", "name": "worker-1", "disk": "a"}, true},
		{"nothing is taken where nothing is preselected", []tea.KeyPressMsg{enter, enter, enter, enter}, Answers{"role": "worker", "name": "worker-1", "disk": ""}, false},
		{"a page appears when it applies", append(append([]tea.KeyPressMsg{enter}, append(press("host"), enter, down, down, enter)...), append(press("vol"), enter)...), Answers{"role": "worker", "name": "host", "disk": "b", "volume": "vol"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			paged := newPagedForm(form())
			drawn := huh.NewForm(paged.groups...)
			drive(drawn, test.keys...)
			if got := drawn.State == huh.StateCompleted; got != test.done {
				t.Errorf("completed %v, want %v; screen:\n%s", got, test.done, drawn.View())
			}
			if diff := cmp.Diff(test.want, paged.answers()); diff != "" {
				t.Errorf("answers (-want +got):\n%s\nscreen:\n%s", diff, drawn.View())
			}
		})
	}
}
