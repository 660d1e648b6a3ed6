// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config/config"

	"maesh.dev/ichor/test/hollow/kubernetes/connection"
	"maesh.dev/ichor/test/hollow/kubernetes/controlplane"
	"maesh.dev/ichor/test/hollow/kubernetes/etcd"
	"maesh.dev/ichor/test/hollow/kubernetes/kubelet"
	"maesh.dev/ichor/test/hollow/kubernetes/pki"
	"maesh.dev/ichor/test/hollow/kubernetes/process"
	"maesh.dev/ichor/test/hollow/workload"

	"github.com/siderolabs/talos/pkg/machinery/config"
)

type clusterConfig = machineryconfig.ClusterConfig

const (
	// probeSoon and probeLater pace the health checks of a plane that isn't ready and of one that is.
	probeSoon  = 500 * time.Millisecond
	probeLater = 5 * time.Second
	// restartTimeout bounds the orderly end of a program that starts again with other flags. An API server takes ten seconds
	// when watches are open, which nobody here waits for.
	restartTimeout = 5 * time.Second
	// manifestTimeout bounds one attempt to apply Talos' manifests.
	manifestTimeout = time.Minute
)

// plane runs the Kubernetes control plane of a node: the API server while etcd runs, the controller manager beside it,
// the scheduler where pods run, and Talos' manifests once the API is up.
type plane struct {
	node *node
	kick chan struct{}

	// mu guards programs and closed, which Stop uses beside the goroutine.
	mu       sync.Mutex
	programs map[string]*program
	closed   bool

	// What follows belongs to the goroutine.
	rendered   config.Provider
	components []controlplane.Component
	versions   map[string]int
	prints     map[string]string
	admin      *connection.Connection
	applied    config.Provider
	published  []kubelet.StaticPod
	complaint  string
}

// program is a component with its process; the scheduler has none where no pods run.
type program struct {
	component controlplane.Component
	child     *process.Child
	started   time.Time
	ready     bool
}

func newPlane(n *node) *plane {
	return &plane{
		node: n, kick: make(chan struct{}, 1),
		programs: map[string]*program{}, versions: map[string]int{}, prints: map[string]string{},
	}
}

func (p *plane) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// run keeps the plane as the configuration and etcd want it until ctx ends.
func (p *plane) run(ctx context.Context) {
	for {
		err := p.reconcile(ctx)

		// The same trouble again isn't news.
		text := ""
		if err != nil {
			text = err.Error()
		}

		if text != "" && text != p.complaint && ctx.Err() == nil {
			p.node.options.Logger.Warn("control plane", "error", err)
		}

		p.complaint = text

		pause := probeLater
		if err != nil || !p.allReady() {
			pause = probeSoon
		}

		timer := time.NewTimer(pause)

		select {
		case <-ctx.Done():
			timer.Stop()

			return
		case <-timer.C:
		case <-p.kick:
			timer.Stop()
		}
	}
}

// reconcile is one round. It never waits long: a program that isn't ready is looked at again in the next round.
func (p *plane) reconcile(ctx context.Context) error {
	member := p.node.member.State()

	switch {
	case member.Phase != etcd.PhaseRunning:
		// Without the service etcd there are no static pods (Talos: k8s/control_plane_static_pod.go).
		stopCtx, cancel := context.WithTimeout(ctx, restartTimeout)
		defer cancel()

		p.stopPrograms(stopCtx, false)
		p.publish()

		return nil
	case !member.Healthy && !p.anyRuns():
		return nil
	}

	if err := p.render(); err != nil {
		return err
	}

	defer p.publish()

	for _, component := range p.components {
		if component.Name != controlplane.APIServerName && !p.isReady(controlplane.APIServerName) {
			continue
		}

		p.ensure(ctx, component)
		p.probe(ctx, component.Name)
	}

	if !p.isReady(controlplane.APIServerName) || p.applied == p.rendered {
		return nil
	}

	applyCtx, cancel := context.WithTimeout(ctx, manifestTimeout)
	defer cancel()

	if err := applyManifests(applyCtx, p.admin, p.rendered.Cluster()); err != nil {
		return err
	}

	p.applied = p.rendered

	return nil
}

// render makes keys, files and command lines from the configuration if it is another one than last time.
func (p *plane) render() error {
	cfg := p.node.currentConfig()
	if cfg == p.rendered {
		return nil
	}

	n, cluster := p.node, cfg.Cluster()
	url := n.localURL(cluster)

	files, err := pki.WriteKubernetes(n.runDir+"/kubernetes/secrets", cluster, n.identity, url)
	if err != nil {
		return fmt.Errorf("issue certificates: %w", err)
	}

	layout := controlplane.Layout{
		Node: n.identity, Files: files, ConfigDir: n.runDir + "/kubernetes/config",
		AuditLog: n.options.AuditLog(n.machine), VarDir: n.machine.EphemeralDir, Controllers: n.options.Controllers,
	}

	components, err := componentsOf(cfg, layout)
	if err != nil {
		return err
	}

	admin, err := adminConnection(cluster, url, "talos")
	if err != nil {
		return err
	}

	if p.admin != nil {
		p.admin.Close()
	}

	p.admin, p.components, p.rendered = admin, components, cfg

	for _, component := range components {
		if p.prints[component.Name] != component.Fingerprint {
			p.prints[component.Name] = component.Fingerprint
			p.versions[component.Name]++
		}
	}

	return nil
}

func componentsOf(cfg config.Provider, layout controlplane.Layout) ([]controlplane.Component, error) {
	cluster := cfg.Cluster()
	apiServer, err := controlplane.APIServer(cluster, layout)
	components := []controlplane.Component{apiServer}

	if !cfg.Machine().Controlplane().ControllerManager().Disabled() {
		manager, managerErr := controlplane.Manager(cluster, layout)
		err = errors.Join(err, managerErr)
		components = append(components, manager)
	}

	if !cfg.Machine().Controlplane().Scheduler().Disabled() {
		scheduler, schedulerErr := controlplane.Scheduler(cluster, layout)
		err = errors.Join(err, schedulerErr)
		components = append(components, scheduler)
	}

	return components, err
}

// ensure makes a program run with the component's flags, ending one that has others.
func (p *plane) ensure(ctx context.Context, component controlplane.Component) {
	p.mu.Lock()
	current := p.programs[component.Name]
	p.mu.Unlock()

	if current != nil && current.component.Fingerprint == component.Fingerprint {
		return
	}

	if current != nil {
		p.node.options.Logger.Info("configuration changed, starting again", "program", component.Name)
		p.setReady(component.Name, false)
		p.publish()

		stopCtx, cancel := context.WithTimeout(ctx, restartTimeout)
		defer cancel()

		if current.child != nil {
			current.child.Stop(stopCtx)
		}
	}

	p.start(component)
}

func (p *plane) start(component controlplane.Component) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.closed {
		return
	}

	next := &program{component: component, started: time.Now()}
	p.programs[component.Name] = next

	if component.Name == controlplane.SchedulerName && !p.node.options.Pods {
		return
	}

	next.child = process.Start(process.Spec{
		Name: component.Name, Path: p.node.options.Kube, Args: append([]string{component.Name}, component.Args...),
		Env: component.Env, LogFile: p.node.logFile(component.Name), Logger: p.node.options.Logger,
		Changed: func(pid int, _ error) {
			if pid == 0 {
				p.setReady(component.Name, false)
				p.wake()
			}
		},
	})
}

// stopPrograms ends every program: with kill at once, else the API server last.
func (p *plane) stopPrograms(ctx context.Context, kill bool) {
	p.mu.Lock()
	programs := p.programs
	p.programs = map[string]*program{}
	p.closed = p.closed || kill
	p.mu.Unlock()

	for _, name := range []string{controlplane.SchedulerName, controlplane.ManagerName, controlplane.APIServerName} {
		running := programs[name]

		switch {
		case running == nil || running.child == nil:
		case kill:
			running.child.Kill()
		default:
			running.child.Stop(ctx)
		}
	}
}

// close drops the connection; run and every program have ended.
func (p *plane) close() {
	if p.admin != nil {
		p.admin.Close()
	}
}

// probe asks a program whether it is ready.
func (p *plane) probe(ctx context.Context, name string) {
	var err error

	healthz := func(port int) error {
		return probe(ctx, p.admin, fmt.Sprintf("https://%s:%d/healthz", p.node.machine.Address, port))
	}

	switch name {
	case controlplane.APIServerName:
		err = probe(ctx, p.admin, p.node.localURL(p.rendered.Cluster())+"/readyz")
	case controlplane.ManagerName:
		err = healthz(controlplane.ManagerPort)
	case controlplane.SchedulerName:
		if p.node.options.Pods {
			err = healthz(controlplane.SchedulerPort)
		}
	}

	p.setReady(name, err == nil)
}

// publish shows the static pods on the board and hands them to the kubelet.
func (p *plane) publish() {
	var (
		pods []workload.StaticPod
		list []kubelet.StaticPod
	)

	p.mu.Lock()

	for _, component := range p.components {
		running := p.programs[component.Name]
		if running == nil {
			continue
		}

		pods = append(pods, workload.StaticPod{
			Name: kubelet.MirrorName(component.Name, p.node.nodeName), Ready: running.ready,
		})
		list = append(list, kubelet.StaticPod{
			Pod:   controlplane.StaticPod(running.component, p.versions[component.Name]),
			Ready: running.ready, Started: running.started,
		})
	}

	p.mu.Unlock()

	if reflect.DeepEqual(p.published, list) {
		return
	}

	p.published = list
	p.node.board.update(func(status *workload.Status) { status.StaticPods = pods })
	p.node.kubelet.setStaticPods(list)
}

func (p *plane) setReady(name string, ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if running := p.programs[name]; running != nil {
		running.ready = ready
	}
}

func (p *plane) isReady(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.programs[name] != nil && p.programs[name].ready
}

func (p *plane) anyRuns() bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	return len(p.programs) > 0
}

// allReady tells whether everything that is configured runs and is ready.
func (p *plane) allReady() bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	for _, component := range p.components {
		if running := p.programs[component.Name]; running == nil || !running.ready {
			return false
		}
	}

	return len(p.components) > 0
}
