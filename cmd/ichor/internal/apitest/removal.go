// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"encoding/json"
	"io"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// patchMachine merges a patch into a machine.
func (s *Server) patchMachine(writer http.ResponseWriter, request *http.Request, name string) {
	body, err := io.ReadAll(io.LimitReader(request.Body, 1<<20))
	if err != nil {
		answer(writer, http.StatusBadRequest, apierrors.NewBadRequest(err.Error()).Status())
		return
	}
	s.mutex.Lock()
	now := s.machines[name]
	if now == nil {
		s.mutex.Unlock()
		answer(writer, http.StatusNotFound, apierrors.NewNotFound(v1alpha1.Resource("talosmachines"), name).Status())
		return
	}
	before, _ := json.Marshal(now)
	after, err := jsonpatch.MergePatch(before, body)
	stored := &v1alpha1.TalosMachine{}
	if err == nil {
		err = json.Unmarshal(after, stored)
	}
	if err == nil && request.URL.Query().Get("dryRun") == "" {
		s.put(stored)
	}
	s.mutex.Unlock()
	if err != nil {
		answer(writer, http.StatusBadRequest, apierrors.NewBadRequest(err.Error()).Status())
		return
	}
	s.told(stored)
	answer(writer, http.StatusOK, stored)
}

// remove marks an object as being deleted: its finalizer holds it until a test calls Delete.
func (s *Server) remove(writer http.ResponseWriter, request *http.Request, resource, name string) {
	var options metav1.DeleteOptions
	if err := json.NewDecoder(io.LimitReader(request.Body, 1<<20)).Decode(&options); err != nil {
		answer(writer, http.StatusBadRequest, apierrors.NewBadRequest(err.Error()).Status())
		return
	}
	if s.Refuse != nil {
		if refused := s.Refuse(request, s.Machine(name)); refused != nil {
			answer(writer, int(refused.ErrStatus.Code), refused.Status())
			return
		}
	}
	now := metav1.NewTime(Now)
	s.mutex.Lock()
	var marked metav1.Object
	if machine := s.machines[name]; resource == "talosmachines" && machine != nil {
		machine = machine.DeepCopy()
		machine.DeletionTimestamp = &now
		marked = machine
	}
	if cluster := s.clusters[name]; resource == "talosclusters" && cluster != nil {
		cluster = cluster.DeepCopy()
		cluster.DeletionTimestamp = &now
		marked = cluster
	}
	if marked != nil && len(options.DryRun) == 0 {
		s.put(marked)
	}
	s.mutex.Unlock()
	if marked == nil {
		answer(writer, http.StatusNotFound, apierrors.NewNotFound(v1alpha1.Resource(resource), name).Status())
		return
	}
	s.told(marked)
	answer(writer, http.StatusOK, marked)
}
