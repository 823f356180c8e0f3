//! The ConversionReview (`apiextensions.k8s.io/v1`) on the wire. What becomes of an object is grove-dynamo's.

use grove_dynamo::convert::convert;
use serde::Deserialize;
use serde_json::{Value, json};

/// The path that it is served under.
pub const PATH: &str = "/convert";

#[derive(Deserialize)]
struct Review {
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    objects: Vec<Value>,
}

/// The answer to a review: all objects converted, or none and why.
pub fn answer(body: &[u8]) -> Result<Value, String> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let review: Result<Review, _> = serde_path_to_error::deserialize(&mut json);
    let request = review
        .map_err(|error| format!("not a ConversionReview: {}: {}", error.path(), error.inner()))?
        .request;
    let converted: Result<Vec<Value>, _> = request
        .objects
        .iter()
        .map(|object| convert(object, &request.desired_api_version))
        .collect();
    let response = match converted {
        Ok(objects) => json!({"uid": request.uid, "result": {"status": "Success"}, "convertedObjects": objects}),
        Err(error) => {
            json!({"uid": request.uid, "result": {"status": "Failure", "message": error.to_string()}, "convertedObjects": []})
        }
    };
    Ok(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(objects: Value) -> Value {
        let request = json!({"uid": "u1", "desiredAPIVersion": "nvidia.com/v1beta1", "objects": objects});
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
        answer(review.to_string().as_bytes()).unwrap()["response"].take()
    }

    #[test]
    fn objects_come_back_in_their_order() {
        let graph = |name: &str| {
            json!({"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "metadata": {"name": name},
                "spec": {"services": {"Frontend": {"componentType": "frontend"}}}})
        };
        let response = asked(json!([graph("a"), graph("b")]));
        assert_eq!(response["uid"], "u1");
        assert_eq!(response["result"], json!({"status": "Success"}));
        let objects = response["convertedObjects"].as_array().unwrap();
        let names: Vec<&Value> = objects.iter().map(|object| &object["metadata"]["name"]).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(objects[0]["apiVersion"], "nvidia.com/v1beta1");
        assert_eq!(
            objects[0]["spec"]["components"],
            json!([{"name": "Frontend", "type": "frontend"}])
        );
    }

    #[test]
    fn what_cannot_be_converted_says_why() {
        let response = asked(json!([{"apiVersion": "nvidia.com/v1alpha1", "spec": {"services": 7}}]));
        assert_eq!(response["result"]["status"], "Failure");
        assert_eq!(
            response["result"]["message"],
            "spec.services: must be a list of services with names, or a map of services by name"
        );
        assert!(answer(b"{}").unwrap_err().contains("missing field `request`"));
    }
}
