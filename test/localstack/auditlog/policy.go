// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"encoding/json"
	"fmt"
	"slices"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// ByPolicy keeps what an audit policy keeps. Talos configures its kube-apiservers to log everything; this makes of it
// the log that they would write with Ichor's policy. What isn't understood is kept.
func ByPolicy(text []byte) (Keep, error) {
	loaded, err := policy.LoadPolicyFromBytes(text)
	if err != nil {
		return nil, fmt.Errorf("audit policy: %w", err)
	}
	evaluator := policy.NewPolicyRuleEvaluator(loaded)
	return func(line []byte) bool {
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return true
		}
		decided := evaluator.EvaluatePolicyRule(attributes(&event))
		return decided.Level != auditinternal.LevelNone && !slices.Contains(decided.OmitStages, auditinternal.Stage(event.Stage))
	}, nil
}

// attributes are the request that an event tells of.
func attributes(event *auditv1.Event) authorizer.Attributes {
	record := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: event.User.Username, Groups: event.User.Groups},
		Verb: event.Verb,
		Path: event.RequestURI,
	}
	if ref := event.ObjectRef; ref != nil {
		record.ResourceRequest = true
		record.APIGroup, record.APIVersion = ref.APIGroup, ref.APIVersion
		record.Resource, record.Subresource = ref.Resource, ref.Subresource
		record.Namespace, record.Name = ref.Namespace, ref.Name
	}
	return record
}
