// SPDX-License-Identifier: Apache-2.0

// Package apitest is an API server in memory, for tests of the commands: it lists, watches, prints tables, and takes
// approvals, applied TalosConfigPatches and merge patches, with resourceVersions and conflicts as the real one has them. It checks nothing else: the
// rules are the real server's, and the end-to-end tests hold the CLI to those.
package apitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const prefix = "/apis/ichor.maesh.dev/v1alpha1/"

// Server is the API server. Its fields may be set before it is used.
type Server struct {
	URL string
	// Refuse is asked before a write is taken; an error that isn't nil is answered instead.
	Refuse func(request *http.Request, machine *v1alpha1.TalosMachine) *apierrors.StatusError
	// Absent makes it a server on which Ichor isn't installed.
	Absent bool
	// BeforePatch is called before a patch is looked at.
	BeforePatch func()
	// Views are what reads of subresources, and of resources that this server doesn't know, are answered with, by path and
	// query as in "talosmachines/NAME/history?revision=1", or by path alone; a Status is a refusal.
	Views map[string]any
	// Preview answers what a change of a patch would do.
	Preview func(question *v1alpha1.TalosConfigPatchPreview) v1alpha1.TalosConfigPatchPreviewStatus
	// Written is called after a write was stored, without the lock, so that it may write too.
	Written func(object metav1.Object)

	mutex    sync.Mutex
	version  int64
	machines map[string]*v1alpha1.TalosMachine
	clusters map[string]*v1alpha1.TalosCluster
	patches  map[string]*v1alpha1.TalosConfigPatch
	// operations are in operations.go.
	operations map[string]*v1alpha1.TalosOperation
	events     []event
	changed    chan struct{}
	requests   []string
}

type event struct {
	version  int64
	resource string
	kind     string
	object   metav1.Object
}

// Start starts a server that ends with the test.
func Start(t testing.TB, objects ...metav1.Object) *Server {
	server := New(objects...)
	http := httptest.NewServer(server)
	t.Cleanup(http.Close)
	t.Cleanup(http.CloseClientConnections)
	server.URL = http.URL
	return server
}

// New makes a server that isn't started.
func New(objects ...metav1.Object) *Server {
	server := &Server{
		machines: map[string]*v1alpha1.TalosMachine{}, clusters: map[string]*v1alpha1.TalosCluster{},
		patches:    map[string]*v1alpha1.TalosConfigPatch{},
		operations: map[string]*v1alpha1.TalosOperation{},
		changed:    make(chan struct{}), version: 100,
	}
	for _, object := range objects {
		server.Put(object)
	}
	return server
}

// Put stores an object as it is, as a controller's write would.
func (s *Server) Put(object metav1.Object) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.put(object)
}

func (s *Server) put(object metav1.Object) {
	s.version++
	object.SetResourceVersion(strconv.FormatInt(s.version, 10))
	kind, resource := "MODIFIED", "talosmachines"
	switch object := object.(type) {
	case *v1alpha1.TalosMachine:
		if s.machines[object.Name] == nil {
			kind = "ADDED"
		}
		object.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TalosMachine"}
		s.machines[object.Name] = object.DeepCopy()
		s.happened(event{s.version, resource, kind, object.DeepCopy()})
	case *v1alpha1.TalosCluster:
		resource = "talosclusters"
		if s.clusters[object.Name] == nil {
			kind = "ADDED"
		}
		object.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TalosCluster"}
		s.clusters[object.Name] = object.DeepCopy()
		s.happened(event{s.version, resource, kind, object.DeepCopy()})
	case *v1alpha1.TalosConfigPatch:
		resource = "talosconfigpatches"
		if s.patches[object.Name] == nil {
			kind = "ADDED"
		}
		object.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TalosConfigPatch"}
		s.patches[object.Name] = object.DeepCopy()
		s.happened(event{s.version, resource, kind, object.DeepCopy()})
	case *v1alpha1.TalosOperation:
		s.putOperation(object)
	}
}

func (s *Server) happened(event event) {
	s.events = append(s.events, event)
	close(s.changed)
	s.changed = make(chan struct{})
}

// Delete removes a machine.
func (s *Server) Delete(name string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.version++
	machine := s.machines[name]
	delete(s.machines, name)
	s.happened(event{s.version, "talosmachines", "DELETED", machine})
}

// Machine is a copy of a stored machine.
func (s *Server) Machine(name string) *v1alpha1.TalosMachine {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.machines[name].DeepCopy()
}

// Cluster is a copy of a stored cluster.
func (s *Server) Cluster(name string) *v1alpha1.TalosCluster {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.clusters[name].DeepCopy()
}

// Writes are the requests that were no reads, as "METHOD path?query".
func (s *Server) Writes() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(request string) bool { return strings.HasPrefix(request, "GET ") })
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	s.mutex.Lock()
	path := strings.TrimPrefix(request.URL.Path, prefix)
	line := request.Method + " " + path
	if request.URL.RawQuery != "" {
		line += "?" + request.URL.RawQuery
	}
	s.requests = append(s.requests, line)
	s.mutex.Unlock()
	parts := strings.Split(path, "/")
	view, viewed := s.Views[strings.TrimPrefix(line, "GET ")]
	if !viewed {
		view, viewed = s.Views[path]
	}
	switch {
	case viewed && request.Method == http.MethodGet:
		code := http.StatusOK
		if refused, ok := view.(metav1.Status); ok {
			code = int(refused.Code)
		}
		answer(writer, code, view)
	case request.URL.Path == "/version":
		answer(writer, http.StatusOK, map[string]string{"gitVersion": "v1.37.2"})
	case request.URL.Path == "/apis":
		answer(writer, http.StatusOK, metav1.APIGroupList{Groups: []metav1.APIGroup{{
			Name: v1alpha1.GroupName, Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: v1alpha1.SchemeGroupVersion.String(), Version: "v1alpha1"}},
		}}})
	case !strings.HasPrefix(request.URL.Path, prefix) || s.Absent:
		answer(writer, http.StatusNotFound, apierrors.NewNotFound(v1alpha1.Resource(""), "").Status())
	case request.Method == http.MethodGet && request.URL.Query().Get("watch") != "":
		s.watch(writer, request, parts[0])
	case request.Method == http.MethodGet && len(parts) == 1:
		s.list(writer, request, parts[0])
	case request.Method == http.MethodGet:
		s.get(writer, parts[0], parts[1])
	case request.Method == http.MethodPut && len(parts) == 3 && parts[0] == "talosmachines":
		s.update(writer, request, parts[1], parts[2])
	case request.Method == http.MethodPost && len(parts) == 3 && parts[0] == "talosconfigpatches" && parts[2] == "preview":
		s.preview(writer, request, parts[1])
	case request.Method == http.MethodPatch && parts[0] == "talosconfigpatches":
		s.apply(writer, request, parts[1])
	case request.Method == http.MethodPatch && parts[0] == "talosmachines" && len(parts) == 2:
		s.patchMachine(writer, request, parts[1])
	case request.Method == http.MethodDelete && len(parts) == 2 && (parts[0] == "talosmachines" || parts[0] == "talosclusters"):
		s.remove(writer, request, parts[0], parts[1])
	case request.Method == http.MethodPatch && parts[0] == "talosclusters":
		s.patch(writer, request, parts[1])
	case parts[0] == operationsResource:
		s.writeOperation(writer, request, parts[1:])
	default:
		answer(writer, http.StatusMethodNotAllowed, apierrors.NewMethodNotSupported(v1alpha1.Resource(parts[0]), request.Method).Status())
	}
}

func (s *Server) objects(resource string) []metav1.Object {
	var objects []metav1.Object
	switch resource {
	case "talosclusters":
		for _, cluster := range s.clusters {
			objects = append(objects, cluster.DeepCopy())
		}
	case "talosconfigpatches":
		for _, patch := range s.patches {
			objects = append(objects, patch.DeepCopy())
		}
	case operationsResource:
		for _, operation := range s.operations {
			objects = append(objects, operation.DeepCopy())
		}
	default:
		for _, machine := range s.machines {
			objects = append(objects, machine.DeepCopy())
		}
	}
	slices.SortFunc(objects, func(a, b metav1.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return objects
}

// fits evaluates the field selectors that the tests use.
func fits(object metav1.Object, selector string) bool {
	if name, found := strings.CutPrefix(selector, "metadata.name="); found {
		return object.GetName() == name
	}
	if state, found := strings.CutPrefix(selector, "spec.approvalState="); found {
		machine, ok := object.(*v1alpha1.TalosMachine)
		return ok && string(machine.Spec.ApprovalState) == state
	}
	return true
}

func (s *Server) list(writer http.ResponseWriter, request *http.Request, resource string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	items := slices.DeleteFunc(s.objects(resource), func(object metav1.Object) bool {
		return !fits(object, request.URL.Query().Get("fieldSelector"))
	})
	if strings.Contains(request.Header.Get("Accept"), "as=Table") {
		answer(writer, http.StatusOK, table(items, s.version))
		return
	}
	kind := map[string]string{"talosmachines": "TalosMachineList", "talosclusters": "TalosClusterList", "talosconfigpatches": "TalosConfigPatchList", operationsResource: "TalosOperationList"}[resource]
	if items == nil {
		items = []metav1.Object{}
	}
	answer(writer, http.StatusOK, map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": kind,
		"metadata": map[string]any{"resourceVersion": strconv.FormatInt(s.version, 10)}, "items": items,
	})
}

func table(items []metav1.Object, version int64) *metav1.Table {
	made := &metav1.Table{
		TypeMeta:          metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"},
		ListMeta:          metav1.ListMeta{ResourceVersion: strconv.FormatInt(version, 10)},
		ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "Name", Type: "string"}, {Name: "Phase", Type: "string"}, {Name: "UUID", Type: "string", Priority: 1}},
		Rows:              []metav1.TableRow{},
	}
	for _, item := range items {
		phase, uuid := "", ""
		if machine, ok := item.(*v1alpha1.TalosMachine); ok {
			phase, uuid = string(machine.Status.Phase), machine.Spec.Identity.UUID
		}
		made.Rows = append(made.Rows, metav1.TableRow{Cells: []any{item.GetName(), phase, uuid}})
	}
	return made
}

func (s *Server) get(writer http.ResponseWriter, resource, name string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, object := range s.objects(resource) {
		if object.GetName() == name {
			answer(writer, http.StatusOK, object)
			return
		}
	}
	answer(writer, http.StatusNotFound, apierrors.NewNotFound(v1alpha1.Resource(resource), name).Status())
}

func (s *Server) update(writer http.ResponseWriter, request *http.Request, name, subresource string) {
	sent := &v1alpha1.TalosMachine{}
	if err := json.NewDecoder(io.LimitReader(request.Body, 1<<20)).Decode(sent); err != nil {
		answer(writer, http.StatusBadRequest, apierrors.NewBadRequest(err.Error()).Status())
		return
	}
	if s.Refuse != nil {
		if refused := s.Refuse(request, sent); refused != nil {
			answer(writer, int(refused.ErrStatus.Code), refused.Status())
			return
		}
	}
	s.mutex.Lock()
	now := s.machines[name]
	if now == nil || now.ResourceVersion != sent.ResourceVersion {
		s.mutex.Unlock()
		answer(writer, http.StatusConflict, apierrors.NewConflict(v1alpha1.Resource("talosmachines"), name, fmt.Errorf("the object has been modified")).Status())
		return
	}
	stored := now.DeepCopy()
	stored.Spec = sent.Spec
	stamp := metav1.Now()
	if subresource == "approval" {
		stored.Spec.Approval.By, stored.Spec.Approval.At = User, &stamp
	} else {
		stored.Spec.IdentityResolution.By, stored.Spec.IdentityResolution.At = User, &stamp
	}
	if request.URL.Query().Get("dryRun") == "" {
		s.put(stored)
	}
	s.mutex.Unlock()
	s.told(stored)
	answer(writer, http.StatusOK, stored)
}

func (s *Server) told(object metav1.Object) {
	if s.Written != nil {
		s.Written(object)
	}
}

func (s *Server) patch(writer http.ResponseWriter, request *http.Request, name string) {
	body, err := io.ReadAll(io.LimitReader(request.Body, 1<<20))
	if err != nil {
		answer(writer, http.StatusBadRequest, apierrors.NewBadRequest(err.Error()).Status())
		return
	}
	if s.BeforePatch != nil {
		s.BeforePatch()
	}
	s.mutex.Lock()
	now := s.clusters[name]
	var bound struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(body, &bound)
	if version := bound.Metadata.ResourceVersion; version != "" && version != now.ResourceVersion {
		s.mutex.Unlock()
		answer(writer, http.StatusConflict, apierrors.NewConflict(v1alpha1.Resource("talosclusters"), name, fmt.Errorf("the object has been modified")).Status())
		return
	}
	before, _ := json.Marshal(now)
	after, err := jsonpatch.MergePatch(before, body)
	stored := &v1alpha1.TalosCluster{}
	if err == nil {
		err = json.Unmarshal(after, stored)
	}
	if err != nil {
		s.mutex.Unlock()
		answer(writer, http.StatusBadRequest, apierrors.NewBadRequest(err.Error()).Status())
		return
	}
	if request.URL.Query().Get("dryRun") == "" {
		stored.Generation++
		s.put(stored)
	}
	s.mutex.Unlock()
	s.told(stored)
	answer(writer, http.StatusOK, stored)
}

func (s *Server) watch(writer http.ResponseWriter, request *http.Request, resource string) {
	query := request.URL.Query()
	if query.Get("sendInitialEvents") != "" {
		answer(writer, http.StatusUnprocessableEntity, apierrors.NewInvalid(v1alpha1.Kind("ListOptions"), "", nil).Status())
		return
	}
	since, _ := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(http.StatusOK)
	flusher, _ := writer.(http.Flusher)
	flusher.Flush()
	asTable := strings.Contains(request.Header.Get("Accept"), "as=Table")
	for {
		s.mutex.Lock()
		changed := s.changed
		var fresh []event
		for _, event := range s.events {
			if event.version > since && event.resource == resource && fits(event.object, query.Get("fieldSelector")) {
				fresh = append(fresh, event)
			}
		}
		since = s.version
		s.mutex.Unlock()
		for _, event := range fresh {
			var object any = event.object
			if asTable {
				object = table([]metav1.Object{event.object}, event.version)
			}
			_ = json.NewEncoder(writer).Encode(map[string]any{"type": event.kind, "object": object})
		}
		flusher.Flush()
		select {
		case <-changed:
		case <-request.Context().Done():
			return
		}
	}
}

func answer(writer http.ResponseWriter, code int, body any) {
	if status, ok := body.(metav1.Status); ok {
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		body = status
	}
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(code)
	_ = json.NewEncoder(writer).Encode(body)
}
