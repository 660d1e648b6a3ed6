// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"maesh.dev/ichor/cmd/ichor/app"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

// Now is the time at which commands run in tests.
var Now = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

// Call is how a command is called.
type Call struct {
	// As is the name it is called by; "ichor" if empty.
	As string
	// Typed is what a person types.
	Typed    string
	Terminal cli.Terminal
	Context  context.Context
	// OnOut and OnErr see standard output and standard error as they are written.
	OnOut, OnErr func(soFar string)
}

// Person is a terminal with a person before it.
var Person = cli.Terminal{In: true, Out: true, Err: true}

// Result is what came of a command.
type Result struct {
	Out, Err string
	Code     int
}

// Run runs a command against the server, from nowhere anybody looks: no terminal.
func (s *Server) Run(t testing.TB, args ...string) Result {
	return s.Call(t, Call{}, args...)
}

// Call runs a command against the server.
func (s *Server) Call(t testing.TB, call Call, args ...string) Result {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if call.Context == nil {
		call.Context = t.Context()
	}
	if call.As == "" {
		call.As = "ichor"
	}
	ctx, cancel := context.WithTimeout(call.Context, 30*time.Second)
	defer cancel()
	out, errOut := buffer{seen: call.OnOut}, buffer{seen: call.OnErr}
	env := &cli.Env{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(call.Typed), Out: &out, ErrOut: &errOut},
		Terminal:  call.Terminal,
		Now:       func() time.Time { return Now },
	}
	words := []string{call.As}
	connection := []string{"--kubeconfig", kubeconfig, "--server", s.URL}
	// What is completed is the last word, and a completion's request is the first.
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		words, args = append(words, args[0]), args[1:]
	}
	words = append(append(words, connection...), args...)
	code := app.Run(ctx, env, words)
	return Result{Out: out.String(), Err: errOut.String(), Code: code}
}

// buffer may be written to by several goroutines.
type buffer struct {
	mutex sync.Mutex
	text  bytes.Buffer
	seen  func(string)
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mutex.Lock()
	count, err := b.text.Write(text)
	soFar := b.text.String()
	b.mutex.Unlock()
	if b.seen != nil {
		b.seen(soFar)
	}
	return count, err
}

func (b *buffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}
