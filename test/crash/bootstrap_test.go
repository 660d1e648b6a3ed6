// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/bootstrap"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/crash/killer"
	"maesh.dev/ichor/test/hollow/control"
)

// order is what the bootstrap in another process is to do.
type order struct {
	Cluster     *v1alpha1.TalosCluster
	Machine     *v1alpha1.TalosMachine
	Address     netip.Addr
	Fingerprint talos.Fingerprint
	StateDir    string
}

const (
	orderFile     = "order.json"
	installSocket = "install.sock"
	// maxAccess bounds what the socket reads and answers.
	maxAccess = 1 << 20
)

// runBootstrap is pkg/bootstrap, but that it dies at its writes. What it would install, the process that ordered it does.
func runBootstrap(ctx context.Context) error {
	text, err := os.ReadFile(at(orderFile))
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal(text, &o); err != nil {
		return err
	}
	config := bootstrap.Config{
		Cluster: o.Cluster, Machine: o.Machine, Address: o.Address, Fingerprint: o.Fingerprint, StateDir: o.StateDir,
		Dialer: talos.NewDialer(talos.DialOptions{}), Prober: talos.NewProber(talos.ProbeOptions{}), Install: askInstall,
		Progress: func(e bootstrap.Event) { fmt.Fprintln(os.Stderr, e.Step, e.Message) },
	}
	k, err := open(partBootstrap)
	if err != nil {
		return err
	}
	if k != nil {
		config.Dialer, config.Transport = k.Dialer(config.Dialer), k.Transport
		config.Progress = func(e bootstrap.Event) {
			fmt.Fprintln(os.Stderr, e.Step, e.Message)
			k.At(killer.Unsent, killer.Write{Act: "word of", Object: string(e.Step)})
		}
		config.Install = func(ctx context.Context, access bootstrap.Access) error {
			err := askInstall(ctx, access)
			if err == nil {
				k.At(killer.Answered, killer.Write{Act: "install"})
			}
			return err
		}
	}
	_, err = bootstrap.Run(ctx, config)
	return err
}

// askInstall has the process that runs the stack install Ichor.
func askInstall(ctx context.Context, access bootstrap.Access) error {
	body, err := json.Marshal(access)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://stack/install", bytes.NewReader(body))
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", at(installSocket))
	}}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAccess))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(string(text))
	}
	return nil
}

// serveInstall answers askInstall. An install goes on though who asked for it died, and who asks next waits for it.
func serveInstall(ctx context.Context, install func(context.Context, bootstrap.Access) error) (*http.Server, error) {
	listener, err := net.Listen("unix", at(installSocket))
	if err != nil {
		return nil, err
	}
	var one sync.Mutex
	server := &http.Server{ReadTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var access bootstrap.Access
		if err := json.NewDecoder(io.LimitReader(r.Body, maxAccess)).Decode(&access); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		one.Lock()
		defer one.Unlock()
		if err := install(ctx, access); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})}
	go func() { _ = server.Serve(listener) }() // it ends with an error, always: that it was closed
	return server, nil
}

// bootstrapKilled does what a stack would have pkg/bootstrap do in this process, in processes that die.
func (c *crashes) bootstrapKilled(ctx context.Context, config bootstrap.Config) (err error) {
	text, err := json.Marshal(order{config.Cluster, config.Machine, config.Address, config.Fingerprint, config.StateDir})
	if err != nil {
		return err
	}
	if err := os.WriteFile(at(orderFile), text, 0o600); err != nil {
		return err
	}
	if err := c.slowDown(ctx); err != nil {
		return err
	}
	server, err := serveInstall(ctx, config.Install)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	log, err := os.OpenFile(at("bootstrap.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	// The kernel kills a child when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bundle := &sameBytes{path: filepath.Join(config.StateDir, "bundle.yaml")}
	for range maxStarts {
		died, err := c.bootstrapOnce(ctx, log)
		if err := bundle.check(); err != nil {
			return err
		}
		if !died {
			return err
		}
	}
	return fmt.Errorf("the bootstrap was started %d times and is not through", maxStarts)
}

// lateness is how long each machine's configuration is on its way inside of the machine. Longer than a start of what was
// killed takes: whether it will arrive is open when the next process looks.
const lateness = 4 * time.Second

// slowDown lets the first configuration of every machine arrive late, even if who sent it is gone.
func (c *crashes) slowDown(ctx context.Context) error {
	hollow := control.NewClient(filepath.Join(c.dir, "run", "hollow.sock"))
	machines, err := hollow.All(ctx)
	if err != nil {
		return err
	}
	for _, machine := range machines {
		if _, err := hollow.Do(ctx, "late-apply", machine.Name, lateness.String()); err != nil {
			return err
		}
	}
	return nil
}

// bootstrapOnce runs one bootstrap to its end and tells whether it was killed.
func (c *crashes) bootstrapOnce(ctx context.Context, log *os.File) (died bool, err error) {
	child, err := startPart(partBootstrap, log)
	if err != nil {
		return false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil && !killed(err) {
				err = fmt.Errorf("the bootstrap gave up: %w; its log is %s", err, log.Name())
			}
			return killed(err) && ctx.Err() == nil, err
		case <-c.strikes.next():
			c.strikes.struck()
			_ = child.Process.Kill() // one that has just ended is as good as killed
			if err := note("strikes", partBootstrap); err != nil {
				return false, err
			}
		case <-ctx.Done():
			_ = child.Process.Kill()
			return false, errors.Join(ctx.Err(), <-ended)
		}
	}
}

// sameBytes is a file that never changes once it is there.
type sameBytes struct {
	path string
	text []byte
}

func (s *sameBytes) check() error {
	text, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) && s.text == nil {
		return nil
	}
	if err != nil {
		return err
	}
	if s.text != nil && !bytes.Equal(s.text, text) {
		return fmt.Errorf("%s changed after it was written", s.path)
	}
	s.text = text
	return nil
}
