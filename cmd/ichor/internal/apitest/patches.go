// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Patch is a copy of a stored patch; nil if there is none.
func (s *Server) Patch(name string) *v1alpha1.TalosConfigPatch {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.patches[name].DeepCopy()
}

// apply stores what is applied, as if nobody else owned anything.
func (s *Server) apply(writer http.ResponseWriter, request *http.Request, name string) {
	sent := &v1alpha1.TalosConfigPatch{}
	if err := json.NewDecoder(io.LimitReader(request.Body, 1<<20)).Decode(sent); err != nil {
		answer(writer, http.StatusBadRequest, apierrors.NewBadRequest(err.Error()).Status())
		return
	}
	s.mutex.Lock()
	now := s.patches[name]
	stored := sent.DeepCopy()
	stored.Generation = 1
	if now != nil {
		stored.Generation, stored.Status = now.Generation, now.Status
		if !reflect.DeepEqual(now.Spec, stored.Spec) {
			stored.Generation++
		}
	}
	if request.URL.Query().Get("dryRun") == "" {
		s.put(stored)
	}
	s.mutex.Unlock()
	if request.URL.Query().Get("dryRun") == "" {
		s.told(stored)
	}
	answer(writer, http.StatusOK, stored)
}

// preview answers what a change of a patch would do.
func (s *Server) preview(writer http.ResponseWriter, request *http.Request, name string) {
	question := &v1alpha1.TalosConfigPatchPreview{}
	if err := json.NewDecoder(io.LimitReader(request.Body, 1<<20)).Decode(question); err != nil {
		answer(writer, http.StatusBadRequest, apierrors.NewBadRequest(err.Error()).Status())
		return
	}
	if question.Spec.Change == v1alpha1.PatchDelete && s.Patch(name) == nil {
		answer(writer, http.StatusNotFound, apierrors.NewNotFound(v1alpha1.Resource("talosconfigpatches"), name).Status())
		return
	}
	question.Kind, question.APIVersion = "TalosConfigPatchPreview", v1alpha1.SchemeGroupVersion.String()
	question.Name = name
	if s.Preview != nil {
		question.Status = s.Preview(question)
	}
	answer(writer, http.StatusCreated, question)
}
