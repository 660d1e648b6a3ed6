// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/pkg/talos"
)

// FieldManager is the name under which the CLI's changes appear in managedFields.
const FieldManager = "ichor-cli"

// Env is everything a command may touch: nothing in a command is global.
type Env struct {
	genericiooptions.IOStreams
	// Config makes clients from the kubeconfig flags.
	Config *genericclioptions.ConfigFlags
	// Name is how the program was called: "ichor" or "kubectl ichor".
	Name string
	// Terminal tells which of the streams a person looks at.
	Terminal Terminal
	// Accessible turns boxes and redraws off; set by a flag.
	Accessible bool
	// Now is the clock.
	Now func() time.Time
	// Dialer and Prober reach machines, for what works without the Kubernetes API; nil are the real ones.
	Dialer talos.Dialer
	Prober talos.Prober
	// SetVerbosity applies -v to the process' log; nil leaves it alone.
	SetVerbosity func(level int) error
}

// Terminal tells which streams are terminals, and what the environment says about them.
type Terminal struct {
	In, Out, Err bool
	// NoColor is the NO_COLOR convention (https://no-color.org).
	NoColor bool
	// Dumb is a terminal that can't be redrawn.
	Dumb bool
}

// ProcessTerminal looks at the process' own streams and environment.
func ProcessTerminal() Terminal {
	return Terminal{
		In:      term.IsTerminal(int(os.Stdin.Fd())),
		Out:     term.IsTerminal(int(os.Stdout.Fd())),
		Err:     term.IsTerminal(int(os.Stderr.Fd())),
		NoColor: os.Getenv("NO_COLOR") != "",
		Dumb:    os.Getenv("TERM") == "dumb",
	}
}

// CanAsk is true when a person is there to answer: questions go to standard error, so that standard output stays data.
func (e *Env) CanAsk() bool { return e.Terminal.In && e.Terminal.Err }

// CanRedraw is true when progress may be drawn over itself.
func (e *Env) CanRedraw() bool { return e.Terminal.Err && !e.Terminal.Dumb && !e.Accessible }

// OutStyle is how standard output is coloured.
func (e *Env) OutStyle() screen.Style { return e.style(e.Terminal.Out) }

// ErrStyle is how standard error is coloured.
func (e *Env) ErrStyle() screen.Style { return e.style(e.Terminal.Err) }

func (e *Env) style(terminal bool) screen.Style {
	if !terminal || e.Terminal.NoColor || e.Terminal.Dumb {
		return screen.Plain
	}
	return screen.Coloured
}

// Infof tells a person something on standard error.
func (e *Env) Infof(format string, args ...any) {
	_, _ = fmt.Fprintf(e.ErrOut, format+"\n", args...)
}

// RESTConfig is the connection that the kubeconfig flags describe, with the server's warnings shown on standard error.
func (e *Env) RESTConfig() (*rest.Config, error) {
	if err := e.checkKubeconfig(); err != nil {
		return nil, err
	}
	config, err := e.Config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	// The server is fair to others by itself (priority and fairness); client-go's own five requests a second would make a
	// rack wait.
	config.QPS, config.Burst = -1, -1
	config.WarningHandler = rest.NewWarningWriter(e.ErrOut, rest.WarningWriterOptions{
		Deduplicate: true,
		Color:       e.Terminal.Err && !e.Terminal.NoColor,
	})
	return config, nil
}

// checkKubeconfig says that there is no kubeconfig, where client-go would try localhost:8080.
func (e *Env) checkKubeconfig() error {
	raw, err := e.Config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return err
	}
	if len(raw.Clusters) > 0 || (e.Config.APIServer != nil && *e.Config.APIServer != "") {
		return nil
	}
	if _, err := rest.InClusterConfig(); err == nil {
		return nil
	}
	return clientcmd.ErrEmptyConfig
}

// Client is the typed client of Ichor's API.
func (e *Env) Client() (versioned.Interface, error) {
	config, err := e.RESTConfig()
	if err != nil {
		return nil, err
	}
	return versioned.NewForConfig(config)
}
