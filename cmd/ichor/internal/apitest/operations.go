// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const operationsResource = "talosoperations"

// User is who the server takes every caller for.
const User = "tester"

func (s *Server) putOperation(operation *v1alpha1.TalosOperation) {
	kind := "MODIFIED"
	if s.operations[operation.Name] == nil {
		kind = "ADDED"
	}
	operation.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TalosOperation"}
	s.operations[operation.Name] = operation.DeepCopy()
	s.happened(event{s.version, operationsResource, kind, operation.DeepCopy()})
}

// Operation is a copy of a stored operation; nil if there is none.
func (s *Server) Operation(name string) *v1alpha1.TalosOperation {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.operations[name].DeepCopy()
}

// DeleteOperation removes an operation.
func (s *Server) DeleteOperation(name string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.version++
	operation := s.operations[name]
	delete(s.operations, name)
	s.happened(event{s.version, operationsResource, "DELETED", operation})
}

// writeOperation makes an operation, patches one, or takes what people ask of one.
func (s *Server) writeOperation(writer http.ResponseWriter, request *http.Request, path []string) {
	body, err := io.ReadAll(io.LimitReader(request.Body, 1<<20))
	if err != nil {
		answer(writer, http.StatusBadRequest, apierrors.NewBadRequest(err.Error()).Status())
		return
	}
	s.mutex.Lock()
	stored, refused := s.nextOperation(request.Method, path, body)
	if refused != nil {
		s.mutex.Unlock()
		answer(writer, int(refused.ErrStatus.Code), refused.Status())
		return
	}
	if request.URL.Query().Get("dryRun") == "" {
		s.version++
		stored.ResourceVersion = strconv.FormatInt(s.version, 10)
		s.putOperation(stored)
	}
	s.mutex.Unlock()
	s.told(stored)
	answer(writer, http.StatusOK, stored)
}

func (s *Server) nextOperation(method string, path []string, body []byte) (*v1alpha1.TalosOperation, *apierrors.StatusError) {
	sent := &v1alpha1.TalosOperation{}
	if err := json.Unmarshal(body, sent); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if method == http.MethodPost {
		if sent.Name == "" {
			sent.Name = fmt.Sprintf("%s%05d", sent.GenerateName, s.version)
		}
		sent.UID, sent.Generation, sent.CreationTimestamp = types.UID("uid-"+sent.Name), 1, metav1.NewTime(Now)
		sent.Status = v1alpha1.TalosOperationStatus{}
		return sent, nil
	}
	now := s.operations[path[0]]
	if now == nil {
		return nil, apierrors.NewNotFound(v1alpha1.Resource(operationsResource), path[0])
	}
	next := now.DeepCopy()
	next.Generation++
	switch {
	case method == http.MethodPatch:
		before, err := json.Marshal(next)
		if err == nil {
			before, err = jsonpatch.MergePatch(before, body)
		}
		if err == nil {
			next = &v1alpha1.TalosOperation{}
			err = json.Unmarshal(before, next)
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return next, nil
	case sent.ResourceVersion != now.ResourceVersion:
		return nil, apierrors.NewConflict(v1alpha1.Resource(operationsResource), path[0], fmt.Errorf("the object has been modified"))
	case len(path) == 2 && (path[1] == "resume" || path[1] == "cancel"):
		if next.Spec.Control == nil {
			next.Spec.Control = &v1alpha1.OperationControl{}
		}
		if path[1] == "resume" {
			next.Spec.Control.ResumeRequests++
		} else {
			next.Spec.Control.CancelRequested = true
		}
		at := metav1.NewTime(Now)
		next.Spec.Control.By, next.Spec.Control.At = User, &at
		return next, nil
	}
	return nil, apierrors.NewMethodNotSupported(v1alpha1.Resource(operationsResource), method)
}
