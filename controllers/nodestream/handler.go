// SPDX-License-Identifier: Apache-2.0

package nodestream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	ichorclient "maesh.dev/ichor/pkg/client/clientset/versioned/typed/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// readTimeout bounds the questions to the API, and finding the machine.
	readTimeout = 20 * time.Second
	// writeTimeout bounds how long a reader may not read: it holds a connection to a machine.
	writeTimeout = 30 * time.Second
	// longest is how long a log is followed.
	longest = 4 * time.Hour
	// defaultMost is how many logs are read at a time.
	defaultMost = 64
)

// Credentials give access to a cluster's configured nodes.
type Credentials interface {
	CredentialsFor(ctx context.Context, clusterName string) (talos.Credentials, error)
}

// Handler serves GET /machines/NAME/log. It judges nobody: whoever reaches it may read.
type Handler struct {
	Machines ichorclient.TalosMachinesGetter
	// Credentials should allow for no more than reading.
	Credentials Credentials
	Dialer      talos.Dialer

	places chan struct{}
	mux    *http.ServeMux
}

// NewHandler makes a handler.
func NewHandler(machines ichorclient.TalosMachinesGetter, credentials Credentials, dialer talos.Dialer) *Handler {
	h := &Handler{Machines: machines, Credentials: credentials, Dialer: dialer, places: make(chan struct{}, defaultMost), mux: http.NewServeMux()}
	h.mux.HandleFunc("GET /machines/{name}/log", h.log)
	return h
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

func (h *Handler) log(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	wanted, err := parse(r.URL.Query())
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	select {
	case h.places <- struct{}{}:
		defer func() { <-h.places }()
	default:
		refuse(w, apierrors.NewTooManyRequests(fmt.Sprintf("%d logs are being read, as many as may be at a time", cap(h.places)), 5))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), longest)
	defer cancel()
	node, err := h.reach(ctx, name)
	if err != nil {
		refuse(w, err)
		return
	}
	defer node.Close() //nolint:errcheck // it was read from only
	out := &stream{to: w, control: http.NewResponseController(w), follow: wanted.Follow}
	if err = copyLog(ctx, node, wanted, out); err == nil {
		out.begin()
		return
	}
	if !out.begun {
		refuse(w, explain(name, wanted, err))
		return
	}
	if r.Context().Err() == nil {
		klog.FromContext(ctx).V(2).Info("reading a machine's log ended early", "machine", name, "reason", err)
	}
	panic(http.ErrAbortHandler) // the reader learns that it isn't complete
}

// reach connects to the machine itself.
func (h *Handler) reach(ctx context.Context, name string) (talos.ConfiguredNode, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := h.Machines.TalosMachines().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	configured := m.Spec.Origin == v1alpha1.MachineAdopted || m.Status.Provisioning != nil && m.Status.Provisioning.IntendedAt != nil
	if m.Spec.ApprovalState != v1alpha1.ApprovalApproved || !configured {
		return nil, conflict(name, "it has no configuration of a cluster yet; its logs can be read once it was provisioned")
	}
	credentials, err := h.Credentials.CredentialsFor(ctx, m.Spec.ClusterRef.Name)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("there is no access to machine %s of cluster %s: %s", name, m.Spec.ClusterRef.Name, err))
	}
	node, err := talos.Reach(ctx, h.Dialer, credentials, m)
	if err != nil {
		return nil, unavailable(name, err)
	}
	return node, nil
}

// copyLog copies what is asked for.
func copyLog(ctx context.Context, node talos.ConfiguredNode, wanted request, to io.Writer) error {
	reader, ok := node.(talos.LogReader)
	if !ok {
		return errors.New("its logs can't be read")
	}
	if !wanted.Kernel {
		return reader.ServiceLog(ctx, wanted.Service, wanted.Follow, wanted.tail(), to)
	}
	if wanted.TailLines == nil || wanted.Follow {
		return reader.KernelLog(ctx, wanted.Follow, wanted.Follow && wanted.TailLines != nil, to)
	}
	last := &lastLines{count: int(wanted.tail())}
	if err := reader.KernelLog(ctx, false, false, last); err != nil {
		return err
	}
	return last.flush(to)
}

// explain turns what a machine answered into an answer of the API.
func explain(name string, wanted request, err error) error {
	if errors.Is(err, talos.ErrNoSuchLog) {
		status := apierrors.NewNotFound(v1alpha1.SchemeGroupVersion.WithResource("talosmachines/log").GroupResource(), name)
		status.ErrStatus.Message = fmt.Sprintf("machine %s has no service %q; kubelet, apid, machined, containerd, cri and, on control planes, etcd and trustd are Talos' own", name, wanted.Service)
		return status
	}
	return unavailable(name, err)
}

func conflict(name, why string) error {
	return apierrors.NewConflict(v1alpha1.SchemeGroupVersion.WithResource("talosmachines").GroupResource(), name, errors.New(why))
}

func unavailable(name string, err error) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("machine %s doesn't answer: %s", name, err))
}

// refuse answers with a Status, as the API does.
func refuse(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	status := metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonServiceUnavailable, Code: http.StatusServiceUnavailable, Message: err.Error()}
	if errors.As(err, &known) {
		status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	text, err := json.Marshal(status)
	if err != nil {
		http.Error(w, "the answer can't be written", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(text)
}

// stream is the answer; a log that is followed is passed on piece by piece.
type stream struct {
	to      http.ResponseWriter
	control *http.ResponseController
	follow  bool
	begun   bool
}

// begin writes the header, once.
func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	s.to.Header().Set("Content-Type", "text/plain")
	s.to.WriteHeader(http.StatusOK)
}

// Write passes a piece on.
func (s *stream) Write(piece []byte) (int, error) {
	s.begin()
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, fmt.Errorf("bound the writing: %w", err)
	}
	n, err := s.to.Write(piece)
	if err == nil && s.follow {
		err = s.control.Flush()
	}
	return n, err
}
